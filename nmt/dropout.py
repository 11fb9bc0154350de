"""Dropout (Srivastava et al. 2014), its variational form with one mask for all time steps (Gal & Ghahramani 2016), and
dropout of whole words (the embedding matrix's rows, token by token)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.ranges import Fraction


class Dropout(nn.Module):
    """Zeroes features with probability `p`, scales the others by 1/(1-p); `variational`: the same features at every t."""

    def __init__(self, p: Fraction, variational: bool = False) -> None:
        super().__init__()
        self.p, self.variational = p, variational

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        if not self.training or self.p == 0:
            return x
        if not self.variational:
            return F.dropout(x, self.p)
        return x * F.dropout(torch.ones_like(x[:, :1]), self.p)


class WordDropout(nn.Module):
    """Zeroes whole word vectors with probability `p`, scales the others by 1/(1-p)."""

    def __init__(self, p: Fraction) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        if not self.training or self.p == 0:
            return x
        return x * F.dropout(torch.ones_like(x[..., :1]), self.p)
