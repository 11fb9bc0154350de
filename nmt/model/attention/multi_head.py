"""Multi-head attention: several scaled dot-product attentions in parallel (Vaswani et al. 2017,
section 3.2.2).

    context = Σ_i O_i Σ_s softmax_s((Q_i q)ᵀ K_i h_s / √d) V_i h_s

q is the decoder state and h_s the annotation of source position s. Each head i has size d and the
parameters Q_i, K_i, V_i and O_i. The context is linear in the weights, so O_i V_i h_s is computed
once per sentence. For H heads and S positions, decoders compute the context as one weighted sum of
these H·S vectors.
"""

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.ranges import Width
from nmt.model.attention import Score
from nmt.model.layers.packed import PackableLinear


class MultiHead(Score):
    """Scaled dot-product attention score function with several heads.

    heads: H, number of heads, each of size query_size / H

    Raises ValueError if query_size is not a multiple of H.
    """

    def __init__(self, *, query_size: int, memory_size: int, heads: Width) -> None:
        super().__init__()
        if query_size % heads:
            raise ValueError(
                f"attention.heads={heads} must divide decoder.hidden_size={query_size}"
            )
        self.heads = heads
        self.query_layer = PackableLinear(query_size, query_size, bias=False)
        self.key_layer = PackableLinear(memory_size, query_size, bias=False)
        self.value_layer = PackableLinear(memory_size, query_size, bias=False)
        self.output_layer = nn.Linear(query_size, memory_size, bias=False)

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return self.key_layer(values)

    def values(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S HM"]:
        by_head = self._by_head(self.value_layer(values))  # [B, H, S, d]
        output = self.output_layer.weight.unflatten(1, (self.heads, -1))  # [M, H, d]
        output = output.permute(1, 2, 0).to(by_head.dtype)  # [H, d, M]
        # `Attention` scales the weights of each head to sum to 1/H.
        return self.heads * (by_head @ output).transpose(1, 2).flatten(-2)

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T HS"]:
        q = self._by_head(query)  # [B, H, T, d]
        k = self._by_head(keys)  # [B, H, S, d]
        scores = (q * q.size(-1) ** -0.5) @ k.transpose(-1, -2)  # [B, H, T, S]
        return scores.transpose(1, 2).flatten(-2)  # [B, T, H·S]

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, length, d]
