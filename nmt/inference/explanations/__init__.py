"""Explanations of translations: attention, alternatives, search tree, occlusion, similar sentences.

Reading order: explanation, search_tree, the rest in any order.
"""
