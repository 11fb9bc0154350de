"""Pooling: one vector for a whole text, by an attention without a query. A pooling is one file here and one YAML in
conf/pooling.

    α_s = softmax_s(score(h_s))        features = Σ_s α_s h_s

Read: this file, mean, word_context, the rest in any order.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import to_float


@dataclass(frozen=True)
class Pooled:
    """`features` of B texts. `weights`: the attention of H hops over the positions of each row; for each hop they sum
    to 1 over all rows of a text, and padding gets exactly 0 (None: the pooling has no weights). `penalty`: a term of
    the loss for each text."""

    features: Float[Tensor, "B F"]
    weights: Float[Tensor, "N H S"] | None = None
    penalty: Float[Tensor, " B"] | None = None


class Pooling(nn.Module):
    """Built with the `memory_size` of the encoder; turns a text into `feature_size` numbers.

    A text is one row of the memory. If the pooling `splits`, a text has one row per sentence; `counts` are the numbers
    of rows. `attends`: the pooling has weights to show.
    """

    splits = False
    attends = True
    feature_size: int

    def __init__(self, memory_size: int) -> None:
        super().__init__()
        self.feature_size = memory_size

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        raise NotImplementedError


def distribute(scores: Float[Tensor, "N S H"], memory: Encoded) -> Float[Tensor, "N H S"]:
    """softmax over the real positions of each row."""
    return (
        to_float(scores)
        .masked_fill(~memory.mask.unsqueeze(-1), -torch.inf)
        .softmax(1)
        .transpose(1, 2)
    )


def gather(weights: Float[Tensor, "N H S"], memory: Encoded) -> Float[Tensor, "N HM"]:
    """The weighted sums of each hop, side by side."""
    return torch.bmm(weights.to(memory.values.dtype), memory.values).flatten(1)
