"""Gated recurrent unit with layer normalisation (Ba et al. 2016, supplementary material, eq. 26-28;
gate by gate as in Chen et al. 2018).

The products of the input (W x + b) and of the state (U h + b) are normalised separately for each
gate, and then added. Apart from the normalisation, the equations are those of the GRU.
"""

from nmt.model.layers.cells.gru import GRU


class NormGRU(GRU):
    """Recurrent layer of gated recurrent units (GRU) with layer-normalised gates."""

    normalized = True
