"""From ids to vectors: an embedding with its dropout."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import PAD
from nmt.layers.dropout import Dropout, WordDropout


def embedding(vocabulary: int, size: int) -> nn.Embedding:
    """An embedding table, to be initialised by `draw`; the vector of PAD is all zeros."""
    return nn.Embedding(vocabulary, size, padding_idx=PAD)


def draw(table: nn.Embedding) -> None:
    """Initialises a table: random vectors of length about 1, zeros for PAD."""
    nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
    nn.init.zeros_(table.weight[PAD])


class Words(nn.Module):
    """The input of an encoder or a decoder: embedding, then dropout of whole words, then dropout of features."""

    def __init__(self, table: nn.Embedding, word_dropout: WordDropout, dropout: Dropout) -> None:
        super().__init__()
        self.table, self.word_dropout, self.dropout = table, word_dropout, dropout

    def forward(self, ids: Int[Tensor, "B T"], mask: Float[Tensor, "B 1 E"] | None = None) -> Float[Tensor, "B T E"]:
        return self.dropout(self.word_dropout(self.table(ids)), mask)
