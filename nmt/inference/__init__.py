"""Inference with trained networks: translation, classification, scoring and word alignment of text.

Reading order: translation, model_step, networks, translator, the rest in any order.
"""
