"""Analysis of models: evaluation, reports of runs, comparisons of systems, and citations.

Reading order: tables, significance, run_results, ranking, result_entries, run_report, comparison,
the rest in any order.
"""
