"""Reports of runs, comparisons of systems, evaluation, and citations of a run.

Read: tables, significance, run_results, ranking, run_report, comparison, the rest in any order.
"""
