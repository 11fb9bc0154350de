"""Trained networks at work: text in, translations or labels out; the formats in which they are written.

Read: translation, generation, networks, workers, unknown, pointing, word_alignment, attention, translator, search_tree,
explain, neighbors, candidates, text_classifier, formats, streams, prompt.
"""
