"""Layers of the networks: recurrence, dropout, embeddings, packed weights for generation, and an
output layer fused with its loss.

Modules in reading order: cells, recurrence, loop_products, dropout, embedding, fused_cross_entropy,
then the others in any order.
"""
