"""The building blocks of networks, made fast: recurrence, dropout, embeddings, matrix products
packed for generation, output layer and loss in one.

Read: cells, recurrence, loop_products, dropout, embedding, fused_cross_entropy,
    the rest in any order.
"""
