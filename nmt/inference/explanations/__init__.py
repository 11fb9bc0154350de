"""Explanations of translations: attention, alternatives, search tree, occlusion, similar sentences.

Read: explanation, search_tree, the rest in any order.
"""
