"""Hierarchical attention: Yang et al. 2016, section 2.2. Words form sentences, sentences form the text.

Each sentence is encoded by itself and pooled by `word_context`. A second bidirectional recurrent network reads the
vectors of the sentences, and a second `word_context` pools its outputs. A word's weight is its weight in its sentence
times the weight of the sentence.
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
    """`hidden_size`: length of both context vectors; the sentence encoder has `sentence_size` units per direction."""

    splits = True

    def __init__(
        self, *, memory_size: int, hidden_size: Width, sentence_size: Width, cell: CellName = "gru"
    ) -> None:
        super().__init__(2 * sentence_size)
        self.words = WordContext(memory_size=memory_size, hidden_size=hidden_size)
        self.encoder = recurrent(cell, memory_size, sentence_size, directions=2)
        self.sentences = WordContext(memory_size=self.feature_size, hidden_size=hidden_size)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        words = self.words(memory, counts)
        assert words.weights is not None
        mask = torch.arange(int(counts.max()), device=counts.device) < counts.unsqueeze(
            1
        )  # [B C], true for a sentence
        grid = words.features.new_zeros(*mask.shape, words.features.size(1)).masked_scatter(
            mask.unsqueeze(-1), words.features
        )
        values, (summary, *_) = self.encoder(grid, lengths=counts)
        text = self.sentences(Encoded(values=values, mask=mask, final_state=summary), counts)
        assert text.weights is not None
        of_sentence = text.weights.squeeze(1)[mask]
        return Pooled(text.features, words.weights * of_sentence.view(-1, 1, 1))
