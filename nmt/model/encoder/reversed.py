"""Recurrent encoder that reads the source from right to left (Sutskever et al. 2014, section 3.3;
the reversed source of Luong et al. 2015).

    h_s = RNN(x_s, h_{s+1})        final state = h_1

x_s is the embedding and h_s the annotation of source position s (1 to S).
"""

from nmt.model.encoder.rnn_encoder import RNNEncoder


class Reversed(RNNEncoder):
    """Encoder whose layers all read from right to left. The memory size is hidden_size.

    Annotations keep the order of the source, so windows and alignments need no conversion.
    """

    run = RNNEncoder.run_backwards
