"""Explanations of translations: attention, alternative tokens, search tree, occlusion, and similar
training sentences.

Reading order: explanation, search_tree, the rest in any order.
"""
