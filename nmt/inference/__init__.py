"""Trained networks at work: text in, translations or labels out; the formats in which they are written.

Imported by: task, configuration, translate, evaluate, score, align, label.
Read: translation, generation, workers, unknown, word_alignment, attention, translator, text_classifier, formats,
streams, prompt.
"""
