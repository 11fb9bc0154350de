"""Trained networks in use: text in, translations or labels out, input and output formats.

Read: translation, model_step, networks, translator, the rest in any order.
"""
