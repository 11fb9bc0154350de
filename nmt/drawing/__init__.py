"""What people look at: pages and pictures; and the values that are shown.

Imported by: analysis, inference, serving, task, training, align, compare, label, translate.
Read: pages, looks, attention_map, explanation, plots.
"""
