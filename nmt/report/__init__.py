"""What people look at: pages and pictures; and the values that are shown.

Imported by: inference, task, training, translate, align, label.
Read: pages, attention_map, explanation, plots.
"""
