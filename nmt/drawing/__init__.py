"""What people look at: pages and pictures; and the values that are shown.

Read: pages, looks, attention_map, explanation, plots.
"""
