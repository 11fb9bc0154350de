"""Trained networks at work: text in, translations or labels out; the formats in which they are written.

Imported by: analysis, configuration, task, align, evaluate, label, score, translate.
Read: translation, generation, workers, unknown, pointing, word_alignment, attention, translator, text_classifier, formats,
streams, prompt.
"""
