"""Hierarchical attention (Yang et al. 2016, section 2.2): words form sentences, sentences form the
text.

    v_i = Σ_s α_is h_is        g_i = BiRNN(v_i, …)        features = Σ_i β_i g_i

h_is is the annotation of word s in sentence i. Each sentence is encoded separately and pooled to
v_i by `word_context`, with weights α. A second bidirectional recurrent network reads the sentence
vectors, and a second `word_context` pools its outputs g_i, with weights β. The weight of a word in
the text is β_i α_is.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.foundation.ranges import Width
from nmt.model.layers.cells import CellName, recurrent
from nmt.model.pooling import Pooled, Pooling
from nmt.model.pooling.word_context import WordContext


class Hierarchical(Pooling):
    """Pooling by attention over the words of each sentence, then over the sentences of the text.

    hidden_size: length of both context vectors
    sentence_size: number of units per direction of the recurrent network over sentences
    cell: recurrent cell of the network over sentences
    """

    splits = True

    def __init__(
        self, *, memory_size: int, hidden_size: Width, sentence_size: Width, cell: CellName = "gru"
    ) -> None:
        super().__init__(memory_size=2 * sentence_size)
        self.words = WordContext(memory_size=memory_size, hidden_size=hidden_size)
        self.encoder = recurrent(cell, memory_size, sentence_size, directions=2)
        self.sentences = WordContext(memory_size=self.feature_size, hidden_size=hidden_size)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        words = self.words(memory, counts)  # features [N, M], weights [N, 1, S]
        longest = int(counts.max())  # C, the maximum number of sentences
        mask = torch.arange(longest, device=counts.device) < counts.unsqueeze(1)  # [B, C]
        sentences = words.features.new_zeros(*mask.shape, words.features.size(1))  # [B, C, M]
        # Row i of the features is the i-th sentence of all texts, in the order of the mask.
        sentences = sentences.masked_scatter(mask.unsqueeze(-1), words.features)
        values, (summary, *_) = self.encoder(sentences, lengths=counts)  # [B, C, F], [B, F]
        # features [B, F], weights [B, 1, C]
        text = self.sentences(Encoded(values=values, mask=mask, final_state=summary), counts)
        sentence_weights = text.weights.squeeze(1)[mask]  # [N]
        return Pooled(text.features, words.weights * sentence_weights.view(-1, 1, 1))
