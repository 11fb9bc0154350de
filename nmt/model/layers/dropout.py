"""Dropout (Srivastava et al. 2014), its variational form with one mask for all time steps (Gal &
Ghahramani 2016), and dropout of whole words (the embedding matrix's rows, token by token)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Fraction

STEPS = 2**16


def dropout(x: Tensor, p: float) -> Tensor:
    """Dropout as torch.nn.functional.dropout, faster on CPUs.

    PyTorch spends most of the time there drawing one 32-bit number per feature from a sequential
    generator. Here each 64-bit draw decides about four features.

    x: features
    p: probability of zero, rounded to a multiple of 2⁻¹⁶
    """
    if x.is_cuda:
        return F.dropout(x, p)
    dropped = min(round(p * STEPS), STEPS - 1)
    # The four 16-bit integers of a draw are uniform and independent.
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - STEPS // 2
    return x * kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))


class Dropout(nn.Module):
    """Zeroes features in training, and scales the others by 1/(1-p).

    Callers that go step by step draw a `mask` for each sentence first, and pass it to every call.

    p: probability of zero
    variational: the same features are zero at every t
    """

    def __init__(self, p: Fraction, variational: bool = False) -> None:
        super().__init__()
        self.p, self.variational = p, variational

    def mask(self, like: Tensor, *shape: int) -> Tensor | None:
        """Factors of the features at every t; None if none is dropped, or if each t drops others.

        like: tensor that has the type and the device of the mask
        shape: its shape
        """
        if not self.training or self.p == 0 or not self.variational:
            return None
        return dropout(torch.ones(shape, dtype=like.dtype, device=like.device), self.p)

    def forward(
        self, x: Float[Tensor, "B T E"], mask: Float[Tensor, "B 1 E"] | None = None
    ) -> Float[Tensor, "B T E"]:
        if not self.training or self.p == 0:
            return x
        if mask is None:
            mask = self.mask(x, x.size(0), 1, x.size(-1))
        return dropout(x, self.p) if mask is None else x * mask


class WordDropout(nn.Module):
    """Zeroes whole word vectors in training, and scales the others by 1/(1-p).

    p: probability of zero
    """

    def __init__(self, p: Fraction) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        if not self.training or self.p == 0:
            return x
        return x * dropout(torch.ones_like(x[..., :1]), self.p)


def idle_layers(run: RunView, group: str) -> dict[str, str]:
    """Keys of a stack of layers that are set without effect: it has one layer, or no dropout.

    run: settings of the run
    group: group of the stack, such as `encoder`

    Returns the reason for each key.
    """
    single = (run.value(f"{group}.num_layers") or 1) == 1
    reasons = {}
    if single:
        for key in ("dropout", "residual"):
            reasons[f"{group}.{key}"] = f"acts between layers: set {group}.num_layers"
    if single or not run.value(f"{group}.dropout"):
        reasons[f"{group}.variational_dropout"] = (
            f"is a kind of {group}.dropout: set that, and at least two layers"
        )
    if not run.value(f"{group}.recurrent_dropout"):
        reasons[f"{group}.recurrent_dropout_of"] = (
            f"nothing is dropped: set {group}.recurrent_dropout"
        )
    return {key: why for key, why in reasons.items() if run.value(key)}
