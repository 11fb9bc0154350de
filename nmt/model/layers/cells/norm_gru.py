"""Gated recurrent unit with layer normalisation (Ba et al. 2016, eq. 20-22; gate by gate as in
Chen et al. 2018).

The input gates and state gates are normalised separately, gate by gate, before they are added. The
equations are those of the GRU without normalisation.
"""

from nmt.model.layers.cells.gru import GRU


class NormGRU(GRU):
    """Recurrent layer of gated recurrent units (GRU) with layer-normalised gates."""

    normalized = True
