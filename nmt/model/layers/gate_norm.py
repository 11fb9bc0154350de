"""Layer normalisation (Ba et al. 2016) of each gate of a recurrent cell."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.layers.numeric import to_float


class GateNorm(nn.Module):
    """Layer normalisation of each gate over its units, with a gain and a bias per unit.

    The last dimension of input and output has G·Q entries. With two directions, the shape is [2,
    B, G·Q].

    gates: G, number of gates
    size: Q, number of units per gate
    directions: number of directions, 1 or 2
    """

    def __init__(self, gates: int, size: int, directions: int = 1) -> None:
        super().__init__()
        self.gates = gates
        self.size = size
        shape = (gates, size) if directions == 1 else (directions, 1, gates, size)
        self.gain = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Float[Tensor, "*rows GQ"]) -> Float[Tensor, "*rows GQ"]:
        gates = to_float(x).unflatten(-1, (self.gates, self.size))  # [… G, Q]
        normalized = F.layer_norm(gates, (self.size,))  # [… G, Q]
        return torch.addcmul(self.bias, normalized, self.gain).flatten(-2)
