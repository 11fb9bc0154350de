"""What networks are made of and what makes them fast: recurrence, dropout, word vectors, products laid out for generation,
output layer and loss in one.

Imported by: attention, pooling, encoder, decoder, network, objective, inference, configuration.
Read: recurrence, dropout, words, fused_cross_entropy, packed.
"""
