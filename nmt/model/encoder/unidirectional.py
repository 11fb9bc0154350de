"""Unidirectional recurrent encoder, which reads from left to right (Luong et al. 2015, section 3;
Sutskever et al. 2014).

    h_s = RNN(x_s, h_{s-1})        final state = h_S

x_s is the embedding and h_s the annotation of source position s (1 to S).
"""

from nmt.model.encoder.rnn_encoder import RNNEncoder


class Unidirectional(RNNEncoder):
    """Encoder whose layers all read from left to right. The memory size is hidden_size."""
