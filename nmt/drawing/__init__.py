"""HTML pages, pictures and JSON of attention, marked words and learning curves.

Read: pages, attention_map, plots, the rest in any order.
"""
