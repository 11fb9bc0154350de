"""Input layer: embedding of token ids, with dropout."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import PAD
from nmt.model.layers.dropout import Dropout, WordDropout


def embedding(vocabulary: int, size: int) -> nn.Embedding:
    """Returns an embedding table, whose initial values must be set by `draw`. The padding token PAD
    contributes no gradient to the table.

    vocabulary: V, number of subwords
    size: E, length of an embedding vector
    """
    return nn.Embedding(vocabulary, size, padding_idx=PAD)


def draw(table: nn.Embedding) -> None:
    """Initialises an embedding table with random vectors of norm about 1, and zeros for PAD."""
    nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
    nn.init.zeros_(table.weight[PAD])


class Factored(nn.Module):
    """Embedding of subwords with factors (Sennrich & Haddow 2016, eq. 3): the concatenated
    embeddings of the subword and of each factor.

    An id encodes a subword and its factors as the digits of a mixed-radix number.

    table: embedding of the subwords
    radices: number of values of each factor
    size: length of each factor's embedding
    """

    def __init__(self, table: nn.Embedding, radices: Sequence[int], size: int) -> None:
        super().__init__()
        self.table = table
        self.factors = nn.ModuleList(nn.Embedding(radix, size) for radix in radices)
        for factor in self.factors:
            nn.init.normal_(factor.weight, std=size**-0.5)  # type: ignore[arg-type]

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        vectors = [self.table(ids % self.table.num_embeddings)]  # [B, T, E]
        rest = ids // self.table.num_embeddings  # digits of the factors
        for factor in self.factors:
            radix: int = factor.num_embeddings  # type: ignore[assignment]
            vectors.append(factor(rest % radix))  # [B, T, size of a factor]
            rest = rest // radix
        return torch.cat(vectors, -1)


class Words(nn.Module):
    """Input layer of a network: embedding, dropout of whole embedding vectors, dropout of features.

    table: embedding of the tokens
    word_dropout: layer that drops whole embedding vectors
    dropout: layer that drops single features
    """

    def __init__(
        self, table: nn.Embedding | Factored, word_dropout: WordDropout, dropout: Dropout
    ) -> None:
        super().__init__()
        self.table = table
        self.word_dropout = word_dropout
        self.dropout = dropout

    def forward(
        self, ids: Int[Tensor, "B T"], mask: Float[Tensor, "B 1 E"] | None = None
    ) -> Float[Tensor, "B T E"]:
        return self.dropout(self.word_dropout(self.table(ids)), mask)
