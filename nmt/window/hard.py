"""Hard attention (Xu et al. 2015, section 4.1): one position at a time, drawn from the weights in training, the most
probable one in generation. The gradient is straight-through (Bengio et al. 2013): the backward pass treats the drawn
one-hot vector as the weights it was drawn from. This has less variance than REINFORCE and needs no baseline."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nmt.normalizer import Normalizer
from nmt.window import Carry, Window


class Hard(Window):
    def forward(
        self, scores: Float[Tensor, "N T S"], query: Tensor | None, carry: Carry, normalizer: Normalizer
    ) -> tuple[Float[Tensor, "N T S"], Carry]:
        weights = normalizer(scores)
        if self.training:
            chosen = torch.multinomial(weights.detach().flatten(0, 1).float(), 1).view(weights.shape[:2])
        else:
            chosen = weights.argmax(-1)
        one = F.one_hot(chosen, weights.size(-1)).to(weights.dtype)
        return one + (weights - weights.detach()), carry
