"""Copying source words (See et al. 2017, section 2.2, the pointer-generator; Gu et al. 2016).

    g_t = σ(w · readout_t + b)        p(y) = g_t p_vocabulary(y) + (1 − g_t) Σ_{s: x_s = y} α_ts

The paper computes g_t from context, state and word before; all three are in the readout. Source and
target share one vocabulary of subwords, which can spell unknown words, so no word is added to it
for one sentence.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, gather_rows, scatter_rows
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import PackableLinear


class Copying(nn.Module):
    """Mixes the distribution over the vocabulary with attention over source words.

    readout_size: features from which the probability g is computed
    """

    def __init__(self, readout_size: int) -> None:
        super().__init__()
        self.gate = PackableLinear(readout_size, 1)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.constant_(self.gate.bias, 2.0)  # what is attended to makes sense only after a while

    def generated(self, readout: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows 1"]:
        """Probabilities g that words are not copied.

        readout: features of the output layer
        """
        # The loss takes the logarithms of g and of 1 − g.
        return torch.sigmoid(to_float(self.gate(readout))).clamp(1e-6, 1 - 1e-6)

    def copied(
        self,
        output: DecoderOutput,
        memory: Prepared,
        words: Int[Tensor, "N T"],
        layout: Layout | None = None,
    ) -> Float[Tensor, "N T"]:
        """Attention that all occurrences of each word in the source get.

        output: attention of the decoder
        memory: memory of the sentences, with source words
        words: words whose probability of being copied is needed
        layout: rows of a search (None: equally many rows per sentence)
        """
        assert output.weights is not None
        assert memory.source_words is not None
        source = memory.source_words.ids  # [B, S]
        same = scatter_rows(words.unsqueeze(2), source.size(0), layout) == source.unsqueeze(1)
        weights = scatter_rows(output.weights, source.size(0), layout)  # [B, n, S]
        # Rounded sums may exceed 1.
        mass = (weights * same).sum(2, keepdim=True).clamp(max=1.0)
        return gather_rows(mass, words.size(1), layout).squeeze(2)  # [B, n, 1] → [N, T]

    def log_probs(
        self,
        logits: Float[Tensor, "N T V"],
        output: DecoderOutput,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> Float[Tensor, "N T V"]:
        """Log-probabilities of the next word: the mixture of generating and copying.

        logits: logits of the vocabulary
        output: features and attention of the decoder
        memory: memory of the sentences, with source words
        layout: rows of a search (None: equally many rows per sentence)
        """
        assert output.weights is not None
        assert memory.source_words is not None
        ids = memory.source_words.ids  # [B, S]
        weights = scatter_rows(output.weights.to(logits.dtype), ids.size(0), layout)  # [B, n, S]
        source = ids.unsqueeze(1).expand(-1, weights.size(1), -1)  # [B, n, S]
        # [B, n, V]; occurrences of the same word are added
        mass = weights.new_zeros(*weights.shape[:2], logits.size(-1)).scatter_add_(
            2, source, weights
        )
        g = self.generated(output.readout)  # [N, T, 1]
        return (
            (g * torch.softmax(logits, -1) + (1 - g) * gather_rows(mass, logits.size(1), layout))
            .clamp(min=1e-38)
            .log()
        )
