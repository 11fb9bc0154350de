"""Classification network: embedding → encoder → pooling → optional hidden layer → linear layer."""

from collections.abc import Iterator
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.data.labels import LabelSet
from nmt.foundation.interfaces import Loss, TextBatch
from nmt.foundation.part_limits import ConfigError, RunView, broken
from nmt.foundation.ranges import Fraction, Range, Width
from nmt.model import Network
from nmt.model.encoder import Encoder
from nmt.model.layers.dropout import Dropout, WordDropout
from nmt.model.layers.embedding import Words, draw, embedding
from nmt.model.layers.numeric import to_float, xavier
from nmt.model.pooling import Pooled, Pooling


class Seq2Label(Network):
    """Classification network, which maps a text to one or several labels.

    vocabulary: number of subwords
    labels: set of labels; defines whether a text may have several labels
    embedding_size: E, length of an embedding vector
    encoder: encoder of the subword embeddings
    pooling: module that reduces the encoder outputs of a text to one vector
    dropout: dropout probability of embedding features
    word_dropout: probability of dropping a whole embedding vector
    feature_dropout: dropout probability before the last layer
    hidden_size: number of rectified linear units between pooling and last layer (Lin et al. 2017
        use 2,000); 0 disables the hidden layer
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        labels: LabelSet,
        embedding_size: Width,
        encoder: Encoder,
        pooling: Pooling,
        dropout: Fraction = 0.0,
        word_dropout: Fraction = 0.0,
        feature_dropout: Fraction = 0.0,
        hidden_size: Annotated[int, Range(0, 100_000)] = 0,
    ) -> None:
        super().__init__()
        self.labels = labels
        self.embedding = embedding(vocabulary, embedding_size)
        draw(self.embedding)
        self.encoder, self.pooling = encoder, pooling
        self.encoder.take_words(Words(self.embedding, WordDropout(word_dropout), Dropout(dropout)))
        self.hidden = nn.Linear(pooling.feature_size, hidden_size) if hidden_size else None
        self.output = nn.Linear(hidden_size or pooling.feature_size, len(labels.names))
        for layer in filter(None, (self.hidden, self.output)):
            xavier(layer)
        self.feature_dropout = Dropout(feature_dropout)

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if a classifier is configured with data without labels, an encoder of
        images, or separate vocabularies for source and target."""
        yield from broken(
            (
                not hasattr(run.parts["data"], "labelled"),
                "data",
                "this data set has no labels; choose data=tsv, csv, jsonl, parquet or hub",
            ),
            (
                run.parts["encoder"].reads_pictures,
                "encoder",
                "the encoder reads images, but the data is text; choose encoder=bidirectional",
            ),
            (
                not run.joint,
                "tokenizer.joint",
                "classification has one vocabulary only; leave tokenizer.joint out",
                False,
            ),
        )

    def read(self, batch: TextBatch) -> tuple[Float[Tensor, "B L"], Pooled]:
        """Computes the logits of the labels.

        batch: B texts

        Returns the logits, and the output of the pooling layer.
        """
        # features [B, F]
        pooled = self.pooling(self.encoder(batch.tokens, batch.lengths), batch.counts)
        features = (
            pooled.features if self.hidden is None else torch.relu(self.hidden(pooled.features))
        )
        features = self.feature_dropout(features.unsqueeze(1)).squeeze(1)  # [B, F]
        return to_float(self.output(features)), pooled  # [B, L]


def label_loss(network: Seq2Label, batch: TextBatch) -> Loss:
    """Returns the classification loss of a batch, in nats, summed over the texts.

    In the result, `nll` is the negative log-likelihood of the gold labels, and `total` is `nll`
    plus the penalty of the pooling layer.

    network: classification network
    batch: texts with labels
    """
    assert batch.labels is not None
    logits, pooled = network.read(batch)
    nll = network.labels.losses(logits, batch.labels).sum()  # in nats
    loss = nll if pooled.penalty is None else nll + pooled.penalty.sum()
    return Loss(total=loss, nll=nll.detach(), num_tokens=batch.num_tokens)
