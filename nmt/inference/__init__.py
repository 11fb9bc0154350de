"""Inference with trained networks: translation, classification, scoring and word alignment of text.

Modules in reading order: translation, constraint, model_step, networks, forced_decoder, translator,
then the others in any order.
"""
