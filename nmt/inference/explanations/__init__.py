"""Explanations of translations: attention, alternatives, search tree, occlusion, similar training sentences.

Read: explanation, the rest in any order.
"""
