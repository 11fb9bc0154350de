"""Pooling: one vector for a whole text, by an attention without a query. A pooling is one file here
and one YAML in conf/pooling.

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
    """Features of B texts in N rows.

    features: F numbers for each text
    weights: attention of H hops over the positions of each row; for each hop they sum to 1 over all
        rows of a text, and padding gets exactly 0 (None: the pooling has no weights)
    penalty: a term of the loss for each text
    """

    features: Float[Tensor, "B F"]
    weights: Float[Tensor, "N H S"] | None = None
    penalty: Float[Tensor, " B"] | None = None


class Pooling(nn.Module):
    """Base of all poolings; by itself the attention of `scores`. A text is one row of the memory.

    memory_size: M, features of each position of the memory
    feature_size: F, numbers for each text
    splits: whether a text has one row per sentence instead
    attends: whether the pooling has weights to show
    """

    splits = False
    attends = True
    feature_size: int

    def __init__(self, *, memory_size: int) -> None:
        super().__init__()
        self.feature_size = memory_size

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        """Scores of each position for each of H hops, before the softmax.

        memory: annotations of N rows
        """
        raise NotImplementedError

    def weights(self, memory: Encoded) -> Float[Tensor, "N H S"]:
        """Softmax of the scores over the real positions of each row.

        memory: annotations of N rows
        """
        # [N, S, H]
        scores = to_float(self.scores(memory)).masked_fill(~memory.mask.unsqueeze(-1), -torch.inf)
        return scores.softmax(1).transpose(1, 2)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        """Features of B texts.

        memory: annotations of N rows
        counts: number of rows of each text
        """
        weights = self.weights(memory)
        return Pooled(gather(weights, memory), weights)


def gather(weights: Float[Tensor, "N H S"], memory: Encoded) -> Float[Tensor, "N HM"]:
    """Weighted sums of the annotations for each hop, side by side.

    weights: attention of each hop
    memory: annotations of N rows
    """
    return torch.bmm(weights.to(memory.values.dtype), memory.values).flatten(1)
