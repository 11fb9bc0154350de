"""The building blocks of networks, made fast: recurrence, dropout, embeddings, matrix products packed for generation,
output layer and loss in one.

Read: cells, recurrence, dropout, words, fused_cross_entropy, packed.
"""
