"""The lexical model (Nguyen & Chiang 2018, section 4): predicts each target token from the
attended source tokens alone, without their context.

    f_t = tanh Σ_s α_ts e_s        h_t = tanh(W f_t) + f_t
    logits_t = W_o readout_t + W_l h_t + b

e_s is the embedding of source token s, and α_ts is its attention weight in decoder step t. W, W_o,
W_l and b are parameters. The model learns the translation of a rare word from few examples.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Layout, Prepared
from nmt.model.attention.layer import sums
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import PackableLinear


class Lexical(nn.Module):
    """Lexical model: feature vectors computed from the attended source embeddings, and their output
    weights.

    embedding_size: E, length of a source embedding
    vocabulary: V, number of target subwords
    """

    def __init__(self, embedding_size: int, vocabulary: int) -> None:
        super().__init__()
        self.hidden = PackableLinear(embedding_size, embedding_size, bias=False)
        self.output = PackableLinear(embedding_size, vocabulary, bias=False)
        for layer in (self.hidden, self.output):
            nn.init.xavier_uniform_(layer.weight)

    def forward(
        self, weights: Float[Tensor, "N T S"], memory: Prepared, layout: Layout | None = None
    ) -> Float[Tensor, "N T E"]:
        assert memory.source_words is not None
        vectors = memory.source_words.vectors  # [B, S, E]
        # The weights are averaged over the attention heads.
        attended = torch.tanh(sums(weights, vectors, memory, layout))  # f_t, [N, T, E]
        return torch.tanh(to_float(self.hidden(attended))) + attended  # h_t, [N, T, E]
