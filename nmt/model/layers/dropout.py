"""Dropout (Srivastava et al. 2014), variational dropout with one mask for all time steps (Gal &
Ghahramani 2016), and word dropout, which zeroes whole embedding vectors."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.foundation.part_limits import RunView, idle_keys
from nmt.foundation.ranges import Fraction

STEPS = 2**16
"""Resolution of dropout probabilities: `dropout` rounds a probability to a multiple of 1 /
STEPS."""


def dropout(x: Tensor, p: float) -> Tensor:
    """Applies dropout to x, faster on CPUs than torch.nn.functional.dropout.

    PyTorch spends most of the time drawing one 32-bit random number per feature. This function
    uses each 64-bit random number for four features.

    x: features
    p: dropout probability, rounded to a multiple of 2⁻¹⁶
    """
    if x.is_cuda:
        return F.dropout(x, p)
    dropped = min(round(p * STEPS), STEPS - 1)
    # The four 16-bit integers of a 64-bit draw are uniform and independent.
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - STEPS // 2  # shape of x
    return x * kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))


class Dropout(nn.Module):
    """Dropout layer, which zeroes features in training and scales the remaining features by
    1/(1-p). Callers that process one time step at a time first draw a mask per sentence with the
    method `mask`, then pass the mask to every call.

    p: dropout probability
    variational: whether the same features are zeroed at all time steps of a sentence
    """

    def __init__(self, p: Fraction, variational: bool = False) -> None:
        super().__init__()
        self.p, self.variational = p, variational

    def mask(self, like: Tensor, *shape: int) -> Tensor | None:
        """Returns a mask of variational dropout, with entries 0 or 1/(1-p); None in evaluation
        mode, for p = 0, and for standard dropout.

        like: tensor with the dtype and device of the mask
        shape: shape of the mask
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
    """Dropout layer that zeroes whole embedding vectors in training.

    The remaining vectors are scaled by 1/(1-p).

    p: dropout probability
    """

    def __init__(self, p: Fraction) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        if not self.training or self.p == 0:
            return x
        return x * dropout(torch.ones_like(x[..., :1]), self.p)


def idle_layers(run: RunView, group: str) -> dict[str, str]:
    """Returns the configuration keys of stacked layers that have no effect in this run, each with
    the reason: a single layer or no dropout.

    run: settings of the training run
    group: configuration group of the layers, such as `encoder`
    """
    single = (run.value(f"{group}.num_layers") or 1) == 1
    reasons = idle_keys(
        (
            single,
            f"needs several layers; set {group}.num_layers",
            f"{group}.dropout",
            f"{group}.residual",
        ),
        (
            single or not run.value(f"{group}.dropout"),
            f"needs dropout and several layers; set {group}.dropout and {group}.num_layers",
            f"{group}.variational_dropout",
        ),
        (
            not run.value(f"{group}.recurrent_dropout"),
            f"recurrent dropout is 0; set {group}.recurrent_dropout",
            f"{group}.recurrent_dropout_of",
        ),
    )
    return {key: why for key, why in reasons.items() if run.value(key)}
