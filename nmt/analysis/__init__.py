"""What runs and translations have in common and in what they differ: reports of sweeps, comparisons of systems.

Imported by: configuration, compare.
Read: tables, significance, runs, report, charts, words, systems, examples, comparison.
"""
