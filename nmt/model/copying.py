"""Copying of source tokens with a pointer-generator network (See et al. 2017, section 2.2; Gu et
al. 2016).

    g_t = σ(w · readout_t + b)        p(y) = g_t p_vocabulary(y) + (1 − g_t) Σ_{s: x_s = y} α_ts

g_t is the probability of generating the token of decoder step t. x_s is source token s, and α_ts
is its attention weight. The paper computes g_t from context, decoder state and previous token. The
readout depends on all three, directly or through the decoder state.

Source and target share one subword vocabulary. Since subwords can spell unknown words, no sentence
needs extra vocabulary entries.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, gather_rows, scatter_rows
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import PackableLinear


class Copying(nn.Module):
    """Copy mechanism: mixes the vocabulary distribution with the attention weights of source
    tokens.

    readout_size: length of the feature vector from which the generation probability g is computed
    """

    def __init__(self, readout_size: int) -> None:
        super().__init__()
        self.gate = PackableLinear(readout_size, 1)
        nn.init.xavier_uniform_(self.gate.weight)
        # g starts near 1, because attention is uninformative at first.
        nn.init.constant_(self.gate.bias, 2.0)

    def generated(self, readout: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows 1"]:
        """Returns the probability g that each token is generated from the vocabulary instead of
        copied.

        readout: input features of the output layer
        """
        # The loss takes the logarithms of g and of 1 − g.
        return torch.sigmoid(to_float(self.gate(readout))).clamp(1e-6, 1 - 1e-6)

    def pointed(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None
    ) -> tuple[Int[Tensor, "B S"], Float[Tensor, "B n S"]]:
        """Returns the ids of the source tokens, which can be copied, and their attention weights
        for n queries per sentence: one for each beam slot and decoder step.

        output: output of the decoder, with attention weights
        memory: prepared encoder memory, with source token ids
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        assert output.weights is not None
        assert memory.source_words is not None
        ids = memory.source_words.ids  # [B, S]
        return ids, scatter_rows(output.weights, ids.size(0), layout)

    def copied(
        self, output: DecoderOutput, memory: Prepared, tokens: Int[Tensor, "N T"]
    ) -> Float[Tensor, "N T"]:
        """Returns the copy probability of each target token: the total attention weight of the
        token's occurrences in the source.

        output: output of the decoder, with attention weights
        memory: prepared encoder memory, with source token ids
        tokens: ids of the target tokens whose copy probability is computed
        """
        source, weights = self.pointed(output, memory, None)  # [B, S], [B, n, S]
        # [B, n, S]
        same = scatter_rows(tokens.unsqueeze(2), source.size(0)) == source.unsqueeze(1)
        # Rounding errors may bring a sum above 1.
        mass = (weights * same).sum(2, keepdim=True).clamp(max=1.0)  # [B, n, 1]
        return gather_rows(mass, tokens.size(1)).squeeze(2)  # [B, n, 1] → [N, T]

    def log_probs(
        self,
        logits: Float[Tensor, "N T V"],
        output: DecoderOutput,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> Float[Tensor, "N T V"]:
        """Returns the log-probabilities of the next token under the mixture of generating and
        copying.

        logits: logits of the target vocabulary
        output: output of the decoder, with readout features and attention weights
        memory: prepared encoder memory, with source token ids
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        ids, weights = self.pointed(output, memory, layout)  # [B, S], [B, n, S]
        weights = weights.to(logits.dtype)
        source = ids.unsqueeze(1).expand(-1, weights.size(1), -1)  # [B, n, S]
        # [B, n, V]; summed over the occurrences of a token
        mass = weights.new_zeros(*weights.shape[:2], logits.size(-1)).scatter_add_(
            2, source, weights
        )
        g = self.generated(output.readout)  # [N, T, 1]
        return (
            (g * torch.softmax(logits, -1) + (1 - g) * gather_rows(mass, logits.size(1), layout))
            .clamp(min=1e-38)
            .log()
        )
