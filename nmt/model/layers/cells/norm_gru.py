"""The gated recurrent unit with layer normalisation (Ba et al. 2016, eq. 20-22; gate by gate as in
Chen et al. 2018).

Every gate of a and of u is normalised over its units before they are added; otherwise as gru.py.
"""

from nmt.model.layers.cells.gru import GRU


class NormGRU(GRU):
    """A layer of gated recurrent units with normalised gates."""

    normalized = True
