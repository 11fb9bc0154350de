"""Explanations of translations: attention, alternative tokens, search tree, occlusion, and similar
training sentences.

Modules in reading order: explanation, then the others in any order.
"""
