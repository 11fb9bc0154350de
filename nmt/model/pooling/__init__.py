"""Pooling: reduces the encoder outputs of a text to one vector, by attention without a query.

    α_s = softmax_s(score(h_s))        features = Σ_s α_s h_s

h_s is the annotation (encoder output) of position s, and α_s is its weight. Each pooling layer is
one file in this folder and one YAML file in conf/pooling.

Modules in reading order: this file, mean, word_context, then the others in any order.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import to_float


@dataclass(frozen=True)
class Pooled:
    """Features of B texts, pooled from N encoder rows.

    features: pooled vector of each text, of size F
    weights: attention weights of H hops over the S positions of each row; None if the layer has
        no weights. Each hop's weights sum to 1 over all rows of a text, and padding has weight 0
    penalty: loss term of each text; None without a penalty
    """

    features: Float[Tensor, "B F"]
    weights: Float[Tensor, "N H S"] | None = None
    penalty: Float[Tensor, " B"] | None = None


class Pooling(nn.Module):
    """Base class of pooling layers. Subclasses implement `scores`; the weights are the softmax of
    the scores. By default, a text is one row of the encoder memory.

    memory_size: M, number of features of each memory position
    feature_size: F, size of the pooled vector of a text
    splits: whether each sentence of a text is a separate row of the encoder memory
    attends: whether the layer has attention weights to display
    """

    splits = False
    attends = True

    def __init__(self, *, memory_size: int) -> None:
        super().__init__()
        self.feature_size = memory_size

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        """Returns the attention score of each position for each of H hops, before the softmax.

        memory: encoder memory, with the annotations of N rows
        """
        raise NotImplementedError

    def weights(self, memory: Encoded) -> Float[Tensor, "N H S"]:
        """Returns the attention weights: softmax of the scores over the positions of each row,
        padding excluded.

        memory: encoder memory, with the annotations of N rows
        """
        # [N, S, H]
        scores = to_float(self.scores(memory)).masked_fill(~memory.mask.unsqueeze(-1), -torch.inf)
        return scores.softmax(1).transpose(1, 2)  # [N, H, S]

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        """Returns the pooled features of B texts.

        memory: encoder memory, with the annotations of N rows
        counts: number of memory rows of each text
        """
        weights = self.weights(memory)  # [N, H, S]
        return Pooled(gather(weights, memory), weights)


BASE = Pooling
"""Base class that every pooling layer in a configuration must extend."""


def gather(weights: Float[Tensor, "N H S"], memory: Encoded) -> Float[Tensor, "N HM"]:
    """Returns the attention-weighted sums of the annotations, with the sums of all hops
    concatenated.

    weights: attention weights of each hop
    memory: encoder memory, with the annotations of N rows
    """
    return torch.bmm(weights.to(memory.values.dtype), memory.values).flatten(1)
