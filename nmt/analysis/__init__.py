"""What runs and translations have in common and in what they differ: reports of sweeps, comparisons of systems.

Read: tables, significance, runs, report, charts, words, systems, examples, comparison.
"""
