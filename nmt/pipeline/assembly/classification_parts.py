"""Components of a classification task: data, labels, tokenizer and network."""

import torch

from nmt import components
from nmt.configuration.training_settings import ClassifySettings
from nmt.data import LabelledSplits
from nmt.data.labels import LabelSet
from nmt.data.preparation import train_once
from nmt.data.word_vectors import load_vectors
from nmt.foundation.errors import UserError
from nmt.foundation.ranks import Ranks
from nmt.model.seq2label import Seq2Label
from nmt.storage import checkpoint as ckpt
from nmt.training.task.classification_task import ClassificationTask


def classification_task(
    settings: ClassifySettings, saved: ckpt.Checkpoint | None, device: torch.device, ranks: Ranks
) -> ClassificationTask:
    config = settings.values
    splits: LabelledSplits = components.make(config, "data").labelled()
    labels = LabelSet.of(splits.train.labels, splits.train.multi_label)
    if len(labels.names) < (1 if splits.train.multi_label else 2):
        raise UserError(
            f"{splits.train.name}: too few different labels ({', '.join(labels.names) or 'none'}); "
            f"a classifier needs at least {1 if splits.train.multi_label else 2}"
        )
    if saved is not None:
        if list(labels.names) != saved.meta["labels"]["names"]:
            raise UserError(
                f"resume={saved.path.parent}: the labels in the data have changed since "
                "training began; restore the data, or start a new training run"
            )
        tokenizer = ckpt.tokenizer_from(saved)
    else:
        tokenizer = train_once(components.make(config, "tokenizer"), splits.train.texts, [], ranks)
    network: Seq2Label = components.classifier(config, tokenizer.source_size, labels)
    if settings.vectors and saved is None:
        pieces = tokenizer.source_pieces(list(range(tokenizer.source_size)))
        load_vectors(network.embedding, pieces, [settings.vectors], "network.embedding_size")
    network.embedding.weight.requires_grad_(not settings.freeze)
    return ClassificationTask(
        splits,
        labels,
        tokenizer,
        network.to(device),
        batching=components.make(config, "batching"),
        metric=settings.choose_by,
        seed=settings.seed,
        max_tokens=settings.max_tokens,
        ranks=ranks,
    )
