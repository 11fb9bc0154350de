"""Classification task: labelled texts. By default, macro-F1 on the validation set selects the best
weights."""

from __future__ import annotations

import logging
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data import Labelled, LabelledSplits, Pairs
from nmt.data.batching import Batching
from nmt.data.documents import Documents, collate_texts, encode_documents
from nmt.data.filters import fingerprint
from nmt.data.labels import LabelSet, report
from nmt.foundation.errors import typed
from nmt.foundation.interfaces import Loss, TextBatch
from nmt.foundation.ranks import ALONE, Ranks
from nmt.inference.explanations.word_removal import removal, write_effects
from nmt.inference.text_classifier import TextClassifier
from nmt.model.seq2label import Seq2Label, label_loss
from nmt.storage.checkpoint import tokenizer_parts
from nmt.tokenizer import Tokenizer
from nmt.training.task import FinalResult, Task, Validation, ValidationStopped, never

log = logging.getLogger(__name__)
MORE_LABELS = " … and more; check that data.label is the right column"
"""Text that ends a shortened list of labels in a warning."""
MOST_LINES = 30
"""Maximum number of labels whose results are logged individually."""


class ClassificationTask(Task):
    """Task that trains a text classifier.

    splits: training, validation and test texts with their labels
    labels: labels of the training set
    tokenizer: tokenizer of the texts
    network: network to train
    batching: size and order of batches
    metric: metric that selects the best weights: macro_f1, accuracy or loss
    seed: random seed of data order and dropout
    max_tokens: maximum number of tokens per text; longer texts are truncated
    ranks: processes that train together
    """

    command = "classify"
    unit = "texts"
    network: Seq2Label

    def __init__(
        self,
        splits: LabelledSplits,
        labels: LabelSet,
        tokenizer: Tokenizer,
        network: Seq2Label,
        *,
        batching: Batching,
        metric: str,
        seed: int,
        max_tokens: int,
        ranks: Ranks = ALONE,
    ) -> None:
        self.splits = splits
        self.labels = labels
        self.tokenizer = tokenizer
        self.network = network
        self.batching = batching
        self.metric = metric
        self.seed = seed
        self.ranks = ranks
        for part in filter(None, (splits.validation, splits.test)):
            unseen = labels.unseen(part.labels)
            if unseen:
                log.warning(
                    "%s: these labels are not in the training set, so their texts count as "
                    "errors: %s",
                    part.name,
                    textwrap.shorten(", ".join(unseen), 300, placeholder=MORE_LABELS),
                )
        self.reader = TextClassifier(network, tokenizer, max_tokens=max_tokens)
        self.encode = partial(
            encode_documents,
            tokenizer=tokenizer,
            splits=network.pooling.splits,
            max_tokens=max_tokens,
        )
        self.documents = self.encode(splits.train.texts)
        if self.documents.cut:
            log.warning(
                "%s: %s texts have more than %s tokens and are truncated",
                splits.train.name, f"{self.documents.cut:,}", max_tokens,
            )  # fmt: skip
        self.gold = labels.table(splits.train.labels)
        self.title = f"{type(network.pooling).__name__} · {splits.train.name}"
        self.fingerprints, self.test_fingerprints = fingerprints(splits)
        tokenizer_meta, self.tensors = tokenizer_parts(tokenizer)
        self.meta = {"tokenizer": tokenizer_meta, "labels": asdict(labels)}

    def introduction(self) -> tuple[str, str]:
        kind = "several labels per text" if self.labels.several else "one label per text"
        lengths = self.documents.lengths
        names = self.labels.names
        data = (
            f"{len(self.splits.train):,} training texts, "
            f"{len(self.splits.validation):,} validation texts, "
            f"{len(self.splits.test or ()):,} test texts; {kind}, from {', '.join(names[:12])}"
            f"{' …' if len(names) > 12 else ''}; vocabulary {self.tokenizer.source_size:,}; "
            f"{lengths.mean():.0f} tokens per text, at most {lengths.max()}"
        )
        pooling = type(self.network.pooling).__name__.lower()
        return data, f"{pooling} pooling, {self.network.encoder.cell_name} cells"

    def objective(self, network: Seq2Label, batch: TextBatch, update: int, total: int) -> Loss:
        return label_loss(network, batch)

    def batches(self, epoch: int) -> TextBatches:
        documents = self.documents
        if self.tokenizer.sampling:
            documents = self.encode(self.splits.train.texts, seed=hash((self.seed, epoch)) % 2**31)
        lengths = documents.lengths
        order = self.batching.indices(lengths, lengths, seed=self.seed, epoch=epoch)
        return TextBatches(documents, self.gold, order)

    def validate(self, interrupted: Callable[[], bool] = never) -> Validation:
        if self.ranks.any(interrupted()):
            raise ValidationStopped
        figures, answers = self._evaluate(self.splits.validation)
        texts = self.splits.validation.texts
        shortest = min(range(len(texts)), key=lambda i: len(texts[i]))
        labels = ", ".join(np.array(self.labels.names)[answers[shortest]])
        return Validation(
            metrics={name: figures[name] for name in ("loss", "macro_f1", "accuracy")},
            example=f"{texts[shortest]} → {labels}",
        )

    def better(self, new: float, old: float | None) -> bool:
        return old is None or (new < old if self.metric == "loss" else new > old)

    def _evaluate(self, part: Labelled) -> tuple[dict[str, Any], np.ndarray]:
        """Returns the metrics of the network on a set of labelled texts, and the predicted labels
        as a Boolean matrix [texts, labels].

        Labels that do not occur in training count as errors in the metrics. The loss (nats per
        text) is computed without these labels.
        """
        texts = self.ranks.share(part.texts)
        share: Any = self.reader.probabilities(texts) if len(texts) else []
        probabilities = np.stack(self.ranks.whole(share))  # [texts, labels]
        answers = self.labels.chosen(probabilities)
        gold = self.labels.table(part.labels)
        absent = 1 - probabilities if self.labels.several else 1.0
        right = np.where(gold, probabilities, absent)
        # A text without a label of the training set has no loss.
        num_texts = len(gold) if self.labels.several else max(1, gold.any(1).sum())
        loss = float(-np.log(np.maximum(right, 1e-30)).sum() / num_texts)
        names = [*self.labels.names, *self.labels.unseen(part.labels)]
        truth = LabelSet(tuple(names), self.labels.several).table(part.labels)
        guesses = np.pad(answers, ((0, 0), (0, len(names) - len(self.labels.names))))
        return {"loss": loss, **report(truth, guesses, names)}, answers

    def test(self) -> FinalResult:
        name = "test" if self.splits.test else "validation"
        part = self.splits.test or self.splits.validation
        figures, answers = self._evaluate(part)
        label_names = np.array(self.labels.names)
        texts = {
            name: [",".join(label_names[row]) for row in answers],
            f"{name}.source": part.texts,
            f"{name}.reference": [",".join(labels) for labels in part.labels],
        }
        gap = removal(self.reader, part.texts)
        lines = _figures(figures)
        if gap.texts:
            lines.append(gap.clause)
        scores = {metric: {"score": figures[metric]} for metric in ("macro_f1", "accuracy", "loss")}
        results = {"scores": scores, "labels": figures["labels"], "removal": asdict(gap)}
        return FinalResult(part=name, results=results, lines=lines, texts=texts)

    def draw(self, folder: Path) -> None:
        """Writes an HTML page that shows validation texts. Words with a high attention weight are
        highlighted."""
        part = self.splits.validation
        by_length = sorted(range(len(part)), key=lambda i: len(part.texts[i]))
        examples = by_length[len(part) // 3 :: max(1, len(part) // 30)]
        answers = self.reader.classify([part.texts[i] for i in examples])
        if any(answer.importances is not None for answer in answers):
            gold = [part.labels[i] for i in examples]
            write_effects(self.reader, answers, folder / "explanations.html", gold)

    def next_commands(self, folder: Path) -> list[str]:
        command = f"python -m nmt.classify {typed(model=folder)}"
        return [
            f"echo {shlex.quote(self.splits.validation.texts[0])} | {command}",
            f"{command} input=FILE output=FILE explain=page.html",
        ]


def _figures(figures: Mapping[str, Any]) -> list[str]:
    """Returns the test results as text lines: the overall metrics, then the results of each
    label."""
    lines = [f"macro-F1 {figures['macro_f1']:.2f}   accuracy {figures['accuracy']:.2f}"]
    lines += [
        f"{label}: precision {figure['precision']:.1f}, recall {figure['recall']:.1f}, "
        f"F1 {figure['f1']:.1f}, {figure['texts']:,} texts"
        for label, figure in figures["labels"].items()
    ]
    others = len(lines) - 1 - MOST_LINES
    if others > 0:
        lines[1 + MOST_LINES :] = [f"… and {others:,} more labels, in results.json"]
    return lines


@dataclass(frozen=True)
class TextBatches:
    """Batches of one epoch of classification.

    documents: tokenised texts
    gold: gold labels as a Boolean matrix [documents, labels]
    order: indices of the documents of each batch
    """

    documents: Documents
    gold: np.ndarray
    order: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.order)

    def read(self, indices: Sequence[int]) -> Iterator[TextBatch]:
        return (collate_texts(self.documents, self.order[i], self.gold) for i in indices)


def fingerprints(splits: LabelledSplits) -> tuple[dict[str, str], dict[str, str]]:
    """Returns two dictionaries from the name of a data set to its hash: one for the training set
    and the validation set, one for the test set."""
    hashes = {"train": _fingerprint(splits.train), "validation": _fingerprint(splits.validation)}
    return hashes, {"test": _fingerprint(splits.test)} if splits.test else {}


def _fingerprint(part: Labelled) -> str:
    return fingerprint(Pairs(part.texts, ["\t".join(row) for row in part.labels], part.name))
