"""Attention: score, window, normaliser and weighted sum (Bahdanau et al. 2015, eq. 5-6; Luong et
al. 2015, eq. 7).

    α_ts = normalise_s(score(q_t, h_s)), within the window        c_t = β_t Σ_s α_ts h_s

q_t is the decoder state of step t, h_s the annotation of source position s, and c_t the context.
β_t is 1, or the gate σ(f(q_t)) of Xu et al. 2015 (section 4.2.1), which scales the context.

Every score can be combined with every window and normaliser, with few exceptions. A score is a file
in this folder, a window a file in window/, and a normaliser a file in normalizer/; each has a YAML
file in conf/. With H heads, a row of weights has H·S entries, head by head.

nmt/analysis/attention_check.py lists the properties that every attention satisfies.

Modules in reading order: this file, dot, general, concat, layer, then the others in any order.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.model.native.native_functions import Form


class Score(nn.Module):
    """Base class of attention scores, which measure how well each query matches each memory
    position. The default is the dot product.

    `forward` receives two precomputed inputs: the keys, computed once per sentence, and the output
    of `query_layer`. Decoders that attend inside their recurrence fuse `query_layer` with their
    recurrent weights.

    The constructor of every score has the arguments `query_size` (Q, features of a query) and
    `memory_size` (M, features of an annotation).

    query_layer: linear map of the query; None if the query is used unchanged
    heads: H, number of heads; each head has separate scores, and separate values of size M
    recurs: whether the score depends on the weights of earlier steps; if so, `forward` is called
        once per decoder step
    """

    heads = 1
    recurs = False

    def __init__(self) -> None:
        super().__init__()
        self.query_layer: nn.Linear | None = None

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        """Returns the attention keys: annotations projected for the comparison with queries.

        values: annotations of B sources, the encoder outputs
        """
        return values

    def values(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S HM"]:
        """Returns the attention values: annotations projected for the weighted sum, with all heads
        concatenated.

        values: annotations of B sources, the encoder outputs
        """
        return values

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T HS"]:
        """Returns the unnormalised attention scores of all positions for each query.

        query: outputs of `query_layer`
        keys: projected annotations, computed by the method `keys`
        attended: coverage, i.e. the attention weights of each position, summed over the earlier
            decoder steps; only passed if `recurs` is True
        """
        return torch.bmm(query, keys.transpose(1, 2))

    @property
    def native_form(self) -> Form | None:
        """Name of the attention score function in the C++ extension; None if the extension does
        not implement the function."""
        return "product" if type(self).forward is Score.forward else None

    @property
    def direction(self) -> Float[Tensor, " K"] | None:
        """Vector v of an additive attention score, vᵀ tanh(W q + U h + b); None for dot
        products."""
        return None


BASE = Score
"""Base class that every attention score function in a configuration must extend."""


def check_score(score: Score, query_size: int, memory_size: int) -> None:
    """Checks a user-defined attention score function with a small example.

    score: attention score function to check
    query_size: Q, number of features of a query
    memory_size: M, number of features of an annotation

    Raises ValueError if the call raises RuntimeError or the result is not a tensor of the expected
    shape.
    """
    if score.recurs:
        return
    query = torch.zeros(2, 3, query_size)  # [B, T, Q]
    try:
        with torch.random.fork_rng(), torch.no_grad():
            keys = score.keys(torch.zeros(2, 4, memory_size))  # [B, S, K]
            scores = score(query if score.query_layer is None else score.query_layer(query), keys)
    except RuntimeError as error:
        name = type(score).__name__
        raise ValueError(
            f"attention={name}: a test of the score function with a tiny example failed: {error}"
        ) from error
    shape = [2, 3, 4 * score.heads]
    returned = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if returned != shape:
        raise ValueError(
            f"attention={type(score).__name__}: `forward` returned scores of shape "
            f"{returned}, expected [sentences, queries, positions × heads] = {shape}"
        )
