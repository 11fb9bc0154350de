"""Additive attention (Bahdanau et al. 2015, appendix A.1.2; `concat` in Luong et al. 2015, section
3.1).

    score(q, h) = vᵀ tanh(W q + U h + b)

q is the decoder state and h an annotation; v, W, U and b are parameters (the papers have no b).
Luong's matrix for the concatenation [q; h] is [W, U]. On CPUs, the hidden units are computed as
tanh(x) = 2σ(2x) − 1, because PyTorch's sigmoid is faster than its tanh.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.fusion import fused
from nmt.foundation.ranges import Width
from nmt.model.attention import Score
from nmt.model.layers.packed import PackableLinear
from nmt.model.native.native_functions import Form

CACHED = 2**18
"""Number of hidden-unit activations per slice when attention is computed without gradients. A slice
takes 1 MB, which fits in the processor's cache."""


class Concat(Score):
    """Additive attention score function (Bahdanau et al. 2015).

    size: number of hidden units
    """

    def __init__(self, *, query_size: int, memory_size: int, size: Width) -> None:
        super().__init__()
        self.query_layer = nn.Linear(query_size, size, bias=False)
        self.key_layer = PackableLinear(memory_size, size)
        # In place, so that the loading of a model skips it (nmt/model/uninitialized.py).
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1).mul_(size**-0.5))  # [K]

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return 2 * self.key_layer(values)  # 2 (U h + b), for 2σ(2x) − 1

    @property
    def direction(self) -> Float[Tensor, " K"]:
        """Vector v [K] of the score vᵀ tanh(W q + U h + b), which maps K hidden units to the
        score."""
        return self.v

    @property
    def native_form(self) -> Form | None:
        return "additive" if type(self).forward is Concat.forward else None

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        # The graph of an ONNX export must be valid for any number of sentences.
        if torch.is_grad_enabled() or torch.onnx.is_in_onnx_export():
            return _scores(query, keys, self.direction)
        sentences = max(1, CACHED // (query.size(1) * keys.size(1) * keys.size(2)))
        # [b, T, K], [b, S, K]
        slices = zip(query.split(sentences), keys.split(sentences), strict=True)
        return torch.cat([_scores(q, k, self.direction) for q, k in slices])


@fused
def _scores(query: Tensor, keys: Tensor, direction: Tensor) -> Tensor:
    if query.is_cuda:  # operations that torch.compile joins
        hidden = torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1) / 2)  # [B, T, S, K]
        return (hidden * direction).sum(-1)  # [B, T, S]
    # The factors 2 are applied to the small tensors, because `hidden` is the largest one.
    hidden = torch.sigmoid((2 * query).unsqueeze(2) + keys.unsqueeze(1))  # [B, T, S, K]
    scores = torch.mv(hidden.flatten(0, 2), 2 * direction) - direction.sum()  # [B·T·S]
    return scores.view(hidden.shape[:-1])
