"""Text on its way to a network: encoded, filtered, cut into batches; labels and word vectors.

Imported by: network, inference, task, configuration, serving, align, exporting.
Read: ragged, batching, filters, pool, journal, store, mixing, preparation, documents, labels, word_vectors.
"""
