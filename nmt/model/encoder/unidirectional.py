"""The encoder that reads from left to right (Luong et al. 2015, section 3; Sutskever et al. 2014).

h_s = RNN(x_s, h_{s-1})        summary = h_S
"""

from nmt.model.encoder.rnn_encoder import RNNEncoder


class Unidirectional(RNNEncoder):
    """Every layer reads from left to right; memory size hidden_size."""
