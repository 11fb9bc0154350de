"""Trained networks at work: text in, translations or labels out; the formats in which they are written.

Imported by: report, task, configuration, translate, evaluate, score, align, label.
Read: generation, workers, unknown, translator, text_classifier, word_alignment, formats, streams.
"""
