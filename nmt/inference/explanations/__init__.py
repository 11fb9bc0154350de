"""Explanations of translations: attention, alternative tokens, search tree, occlusion, and similar
training sentences.

Reading order: explanation, the rest in any order.
"""
