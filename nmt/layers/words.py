"""From ids to vectors: an embedding with its dropout."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import PAD
from nmt.layers.dropout import Dropout, WordDropout


def embedding(vocabulary: int, size: int) -> nn.Embedding:
    """A table of vectors, drawn by nobody yet (see `draw`); PAD's is all zeros."""
    return nn.Embedding(vocabulary, size, padding_idx=PAD)


def draw(table: nn.Embedding) -> None:
    """Vectors of length about 1, PAD's of length 0."""
    nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
    nn.init.zeros_(table.weight[PAD])


class Words(nn.Module):
    """The input of an encoder or a decoder: whole words dropped, then features."""

    def __init__(self, table: nn.Embedding, word_dropout: WordDropout, dropout: Dropout) -> None:
        super().__init__()
        self.table, self.word_dropout, self.dropout = table, word_dropout, dropout

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        return self.dropout(self.word_dropout(self.table(ids)))
