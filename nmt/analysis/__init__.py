"""Analysis of models: evaluation, reports of runs, comparisons of systems, checks of attention.

Modules in reading order: tables, significance, run_results, run_groups, collected_results, ranking,
ranking_table, run_report, comparison, comparison_tables, system_comparison, laws, attention_probe,
weight_laws, attention_check, then the others in any order.
"""
