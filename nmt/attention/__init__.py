"""Attention: score + mask + softmax + weighted sum (Bahdanau et al. 2015, eq. 5-6; Luong et al. 2015, eq. 7).

    α_ts = softmax_s(score(q_t, h_s))        c_t = Σ_s α_ts h_s

A score is the one part that differs between the mechanisms: it lives in a file of its own beside this one.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.interfaces import Memory
from nmt.packed import Block
from nmt.recurrence import full


class Score(nn.Module):
    """How well each query fits each position of the memory.

    A score is built with `query_size` and `memory_size` and has two parts that do not depend on the position asked for:
    `keys`, computed once per sentence, and `query_layer`, a linear map of the query (None: the query as it is). Decoders
    that recur through attention multiply by `query_layer` and their own recurrent weights in one product.
    """

    query_layer: nn.Linear | None

    def __init__(self) -> None:
        super().__init__()
        self.query_layer = None

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        """The memory as it is compared with queries."""
        raise NotImplementedError

    def forward(self, query: Float[Tensor, "B T P"], keys: Float[Tensor, "B S K"]) -> Float[Tensor, "B T S"]:
        """Unnormalised scores; `query` has been through `query_layer`."""
        raise NotImplementedError


class Attention(nn.Module):
    """Distributes each query over the real positions of its sentence's memory; remembers nothing between calls.

    The rows of one sentence (the hypotheses of a beam) are more queries of the same memory, which is never copied.
    """

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def project(self, query: Float[Tensor, "N T Q"]) -> Float[Tensor, "N T P"]:
        """The query as the score wants it."""
        return query if self.score.query_layer is None else self.score.query_layer(query)

    def query_blocks(self) -> list[Block]:
        """The matrix of `project` [P Q] as a block for `fuse`; an empty list if the query is taken as it is."""
        return [] if self.score.query_layer is None else [(self.score.query_layer.weight, None)]

    def weights(self, query: Float[Tensor, "N T P"], memory: Memory) -> Float[Tensor, "N T S"]:
        """Attention weights of projected queries: each row sums to 1, padding gets exactly 0."""
        assert memory.keys is not None, "Decoder.prepare makes the keys"
        scores = self.score(memory.spread(full(query)), memory.keys)
        weights = scores.masked_fill(~memory.mask.unsqueeze(1), -torch.inf).softmax(-1)
        return memory.gather(weights, query.size(1))


def average(weights: Float[Tensor, "N T S"], memory: Memory) -> Float[Tensor, "N T M"]:
    """Weighted sums of the memory's values, one for each row and step."""
    summed = torch.bmm(memory.spread(weights).to(memory.values.dtype), memory.values)
    return memory.gather(summed, weights.size(1))
