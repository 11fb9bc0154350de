"""What people see: messages at the terminal, pages, pictures; and the values that are shown.

Imported by: inference, task, training, configuration, translate, evaluate, score, align, label.
Read: terminal, progress, pages, attention_map, explanation, plots.
"""
