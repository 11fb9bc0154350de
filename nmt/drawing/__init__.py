"""Drawings of attention maps, word importances and learning curves, as HTML pages, images or JSON.

Reading order: pages, attention_map, plots, the rest in any order.
"""

FIGURES = (".png", ".pdf", ".svg")
"""File name extensions of the image formats that matplotlib writes."""
