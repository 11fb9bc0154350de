"""Maxout readout (Goodfellow et al. 2013) of Bahdanau et al. 2015, appendix A.2.2.

    t̃ = U s + V E y + C c        readout_k = max(t̃_k, t̃_{k+D})

s is the decoder state, E y the embedding of the previous token, c the context, and D the number of
features of the readout. U, V and C are parameters. The paper takes the maximum of t̃_{2k-1} and
t̃_{2k}, which differs only in the order of the rows of the parameters.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function

from nmt.model.layers.numeric import xavier
from nmt.model.layers.packed import PackableLinear


class Maxout(nn.Module):
    """Maxout layer: element-wise maximum of the two halves of a linear layer's output.

    input_size: number of features of the concatenated inputs
    size: number of features of the readout
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.layer = xavier(PackableLinear(input_size, 2 * size))

    def forward(self, x: Float[Tensor, "N T I"]) -> Float[Tensor, "N T D"]:
        hidden = self.layer(x)  # [N, T, 2·D]
        if torch.is_grad_enabled():
            return _LargerHalf.apply(hidden)
        first, second = hidden.chunk(2, -1)  # [N, T, D] each
        return first.maximum(second)


class _LargerHalf(Function):
    """Autograd function: element-wise maximum of the two halves of the features. The backward pass
    of torch.maximum would do four times as much work, because it compares the halves again and
    fills tensors with zeros."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:
        first, second = hidden.chunk(2, -1)
        ctx.save_for_backward(first >= second)
        return first.maximum(second)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        (is_first,) = ctx.saved_tensors
        d_first = d * is_first
        return torch.cat([d_first, d - d_first], -1)
