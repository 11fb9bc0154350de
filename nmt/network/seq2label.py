"""The network that classifies: embedding → encoder → pooling → linear layer. Its loss is that of the labels plus the
pooling's penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.corpus.batching import pad
from nmt.corpus.ragged import Ragged
from nmt.layers.dropout import Dropout, WordDropout
from nmt.encoder.bidirectional import Encoder
from nmt.foundation.interfaces import EOS, PAD, Loss, moved
from nmt.corpus.labels import LabelSet
from nmt.pooling import Pooled, Pooling
from nmt.foundation.ranges import Fraction, Size
from nmt.layers.recurrence import full


@dataclass(frozen=True)
class Documents:
    """Encoded texts, cut into rows (sentences, or one row a text): text i is rows offsets[i] to offsets[i+1]. A row is never
    empty. `cut`: how many texts were too long and have lost their end."""

    rows: Ragged
    offsets: np.ndarray
    cut: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text."""
        return np.diff(self.rows.offsets[self.offsets])


@dataclass(frozen=True)
class TextBatch:
    """B texts in N rows, `counts` of them each, padded at the end with PAD. `labels`: which each text has (None: unknown);
    `num_tokens` counts texts."""

    tokens: Int[Tensor, "N S"]
    lengths: Int[Tensor, "N"]
    counts: Int[Tensor, "B"]
    labels: Bool[Tensor, "B L"] | None
    num_tokens: int

    def to(self, device: torch.device) -> TextBatch:
        return moved(self, device)


def collate(documents: Documents, indices: Sequence[int] | np.ndarray, labels: np.ndarray | None) -> TextBatch:
    """The chosen texts as one padded batch. No end of sentence is added: nothing but words can be attended to."""
    places = [np.arange(documents.offsets[i], documents.offsets[i + 1]) for i in indices]
    tokens, lengths = pad(documents.rows, np.concatenate(places), end=False)
    counts = torch.tensor([len(each) for each in places])
    held = None if labels is None else torch.from_numpy(labels[np.asarray(indices)])
    return TextBatch(tokens=tokens, lengths=lengths, counts=counts, labels=held, num_tokens=len(places))


class Classifier(nn.Module):
    """`embedding_size`; `dropout` of embeddings, `word_dropout` of whole words, `feature_dropout` before the last layer."""

    def __init__(
        self,
        *,
        vocabulary: int,
        labels: LabelSet,
        embedding_size: Size,
        encoder: Encoder,
        pooling: Pooling,
        dropout: Fraction = 0.0,
        word_dropout: Fraction = 0.0,
        feature_dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        self.labels = labels
        self.embedding = nn.Embedding(vocabulary, embedding_size, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=embedding_size**-0.5)
        nn.init.zeros_(self.embedding.weight[PAD])
        self.encoder, self.pooling = encoder, pooling
        self.output = nn.Linear(pooling.feature_size, len(labels.names))
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.dropout, self.word_dropout = Dropout(dropout), WordDropout(word_dropout)
        self.feature_dropout = Dropout(feature_dropout)

    def forward(self, batch: TextBatch) -> tuple[Float[Tensor, "B L"], Pooled]:
        """Unnormalised log-probabilities of the labels, and what the pooling saw."""
        embedded = self.dropout(self.word_dropout(self.embedding(batch.tokens)))
        pooled = self.pooling(self.encoder(embedded, batch.lengths), batch.counts)
        features = self.feature_dropout(pooled.features.unsqueeze(1)).squeeze(1)
        return full(self.output(features)), pooled


def classification_loss(model: Classifier, batch: TextBatch, update: int) -> Loss:
    """Nats of the right labels, plus the pooling's penalty in what is minimised."""
    assert batch.labels is not None
    logits, pooled = model(batch)
    nll = model.labels.losses(logits, batch.labels).sum()
    total = nll if pooled.penalty is None else nll + pooled.penalty.sum()
    return Loss(total=total, nll=nll.detach(), num_tokens=batch.num_tokens)


def use_vectors(model: Classifier, pieces: Sequence[str], vectors: dict[str, np.ndarray], freeze: bool) -> float:
    """Word vectors as the embedding of the words that have one, tuned with the rest or frozen; other words start (or, if
    frozen, stay) at random, as spread as the vectors are. Returns the share of the vocabulary that has one."""
    words = [piece.removeprefix("▁") if piece.startswith("▁") else "" for piece in pieces]
    found = {i: vectors.get(word, vectors.get(word.lower())) for i, word in enumerate(words) if word}
    known = {i: vector for i, vector in found.items() if vector is not None}
    weight = model.embedding.weight
    with torch.no_grad():
        if known:
            table = torch.from_numpy(np.stack(list(known.values())))
            weight.normal_(float(table.mean()), float(table.std()))
            weight[list(known)] = table.to(weight)
        weight[[PAD, EOS]] = 0.0
    weight.requires_grad_(not freeze)
    return len(known) / len(pieces)
