"""Layers of the networks: recurrence, dropout, embeddings, packed weights for generation, and an
output layer fused with its loss.

Reading order: cells, recurrence, loop_products, dropout, embedding, fused_cross_entropy, the rest
in any order.
"""
