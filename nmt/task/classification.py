"""Training to classify: labelled text, and macro-F1 on the validation part to choose the best weights."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.configuration import build
from nmt.storage import checkpoint as ckpt
from nmt.corpus.batching import Batching
from nmt.storage.checkpoint import Checkpoint
from nmt.network.seq2label import Classifier, Documents, TextBatch, classification_loss, collate, use_vectors
from nmt.corpus.ragged import fingerprint
from nmt.data import Labelled, LabelledSplits, Pairs
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Loss
from nmt.corpus.labels import LabelSet, report
from nmt.training.run_directory import RunDirectory
from nmt.task import Task
from nmt.inference.text_classifier import TextClassifier, encode, removal
from nmt.tokenizer import Tokenizer
from nmt.corpus.word_vectors import read_vectors

log = logging.getLogger(__name__)


class Classification(Task):
    """See `Task`."""

    command, unit = "classify", "texts"

    def __init__(self, config: Mapping[str, Any], device: torch.device, saved: Checkpoint | None) -> None:
        self.config = config
        self.splits: LabelledSplits = build.make(config, "data").labelled()
        self.labels = LabelSet.of(self.splits.train.labels, self.splits.several)
        for part in (self.splits.validation, self.splits.test):
            unseen = [] if part is None else self.labels.unseen(part.labels)
            if part is not None and unseen:
                log.warning(
                    "%s: labels that do not occur in training, and so count as missed: %s", part.name, ", ".join(unseen)
                )
        if len(self.labels.names) < (1 if self.splits.several else 2):
            raise UserError(
                f"{self.splits.train.name}: too few labels ({', '.join(self.labels.names) or 'none'}); give two or more"
            )
        if saved is not None and list(self.labels.names) != saved.meta["labels"]["names"]:
            raise UserError(f"resume={saved.path.parent}: the data has other labels than when this run began")
        self.tokenizer: Tokenizer = (
            build.make(config, "tokenizer").train(self.splits.train.texts, [])
            if saved is None
            else ckpt.tokenizer_from(saved)
        )
        self.model: Classifier = build.classifier(config, self.tokenizer.source_size, self.labels)
        if config["vectors"] and saved is None:
            self._use_vectors(config["vectors"])
        self.model.embedding.weight.requires_grad_(not config["freeze"])
        self.model.to(device)
        self.batching: Batching = build.make(config, "batching")
        self.reader = TextClassifier(self.model, self.tokenizer, max_tokens=config["max_tokens"])
        self.encode = partial(
            encode, tokenizer=self.tokenizer, splits=self.model.pooling.splits, max_tokens=config["max_tokens"]
        )
        self.documents = self.encode(self.splits.train.texts)
        if self.documents.cut:
            log.warning(
                "%s: %s texts have more than %s tokens: only those are read",
                self.splits.train.name, f"{self.documents.cut:,}", config["max_tokens"],
            )  # fmt: skip
        self.gold = self.labels.table(self.splits.train.labels)
        self.metric, self.title = config["choose_by"], f"{type(self.model.pooling).__name__} · {self.splits.train.name}"
        self.fingerprints = {
            "train": _fingerprint(self.splits.train),
            "validation": _fingerprint(self.splits.validation),
        }
        tokenizer_meta, self.tensors = ckpt.tokenizer_parts(self.tokenizer)
        self.meta = {"tokenizer": tokenizer_meta, "labels": asdict(self.labels)}

    def _use_vectors(self, path: str) -> None:
        pieces = self.tokenizer.source_pieces(list(range(self.tokenizer.source_size)))
        words = {form for piece in pieces if piece.startswith("▁") for form in (piece[1:], piece[1:].lower())}
        vectors = read_vectors(path, words - {""})
        size = self.model.embedding.embedding_dim
        for vector in vectors.values():
            if len(vector) != size:
                raise UserError(
                    f"vectors={path}: {len(vector)} numbers a word; set network.embedding_size={len(vector)}"
                )
        share = use_vectors(self.model, pieces, vectors, self.config["freeze"])
        if not share:
            raise UserError(
                f"vectors={path}: has none of the vocabulary's words. Are they of this language? Choose tokenizer=word, "
                "so that the vocabulary is made of words"
            )
        log.info("%s: vectors for %.0f %% of the vocabulary", path, 100 * share)

    @staticmethod
    def check(config: Mapping[str, Any]) -> None:
        build.check(config, build.CLASSIFICATION)

    def introduction(self) -> list[str]:
        kind = "several labels a text" if self.labels.several else "one label a text"
        lengths = self.documents.lengths
        return [
            f"{len(self.splits.train):,} training texts, {len(self.splits.validation):,} validation, "
            f"{len(self.splits.test or ()):,} test; {kind} of {', '.join(self.labels.names[:12])}"
            f"{' …' if len(self.labels.names) > 12 else ''}; vocabulary {self.tokenizer.source_size:,}; "
            f"{lengths.mean():.0f} tokens a text, at most {lengths.max()}",
            f"{self.config['pooling']['_target_'].split('.')[-2]} pooling, {self.config['cell']} cells",
        ]

    def objective(self, model: Classifier, batch: TextBatch, update: int) -> Loss:
        return classification_loss(model, batch, update)

    def batches(self, epoch: int) -> _Batches:
        documents = self.documents
        if self.tokenizer.sampling:
            documents = self.encode(self.splits.train.texts, seed=hash((self.config["seed"], epoch)) % 2**31)
        lengths = documents.lengths
        order = self.batching.indices(lengths, lengths, seed=self.config["seed"], epoch=epoch)
        return _Batches(documents, self.gold, order)

    def validate(self) -> dict[str, float]:
        found = self._judge(self.splits.validation)[0]
        return {name: found[name] for name in ("loss", "macro_f1", "accuracy")}

    def better(self, new: float, old: float | None) -> bool:
        return old is None or (new < old if self.metric == "loss" else new > old)

    def _judge(self, part: Labelled) -> tuple[dict[str, Any], np.ndarray]:
        """Figures of the model's answers, and the answers, a Boolean table. Labels that it cannot know are missed; the loss
        (nats a text) is of those that it can."""
        gold, probabilities = self.labels.table(part.labels), self.reader.probabilities(part.texts)
        chosen = self.labels.chosen(probabilities)
        right = np.where(gold, probabilities, 1 - probabilities if self.labels.several else 1.0)
        loss = float(-np.log(np.maximum(right, 1e-30)).sum(1).mean())
        names = [*self.labels.names, *self.labels.unseen(part.labels)]
        table = LabelSet(tuple(names), self.labels.several).table(part.labels)
        guessed = np.pad(chosen, ((0, 0), (0, len(names) - len(self.labels.names))))
        return {"loss": loss, **report(table, guessed, names)}, chosen

    def test(self, files: RunDirectory) -> tuple[str, dict[str, Any], list[str]]:
        name, part = ("test", self.splits.test) if self.splits.test else ("validation", self.splits.validation)
        found, chosen = self._judge(part)
        rows = [",".join(np.array(self.labels.names)[row]) for row in chosen]
        files.write_text(f"{name}.txt", "".join(row + "\n" for row in rows))
        scores = {metric: {"score": found[metric]} for metric in ("macro_f1", "accuracy", "loss")}
        lines = [f"macro-F1 {found['macro_f1']:.2f}   accuracy {found['accuracy']:.2f}"]
        lines += [
            f"{label}: precision {f['precision']:.1f}, recall {f['recall']:.1f}, F1 {f['f1']:.1f}, {f['texts']:,} texts"
            for label, f in found["labels"].items()
        ]
        gap = removal(self.reader, part.texts)
        if gap.texts:
            lines.append(
                f"without the 3 most important words the guess loses {100 * gap.most_important:.1f} points of "
                f"probability, without 3 random words {100 * gap.random:.1f}"
            )
        return name, {"scores": scores, "labels": found["labels"], "removal": asdict(gap)}, lines

    def draw(self, folder: Path) -> None:
        """A few validation texts with their most important words."""
        from nmt.report.explanation import write_explanations

        part = self.splits.validation
        shown = sorted(range(len(part)), key=lambda i: len(part.texts[i]))[len(part) // 3 :: max(1, len(part) // 30)]
        answers = self.reader.classify([part.texts[i] for i in shown])
        if any(answer.importances is not None for answer in answers):
            write_explanations(answers, folder / "explanations.html", [part.labels[i] for i in shown])

    def next_commands(self, folder: Path) -> list[str]:
        return [
            f"echo {shlex.quote(self.splits.validation.texts[0])} | python -m nmt.classify model={folder}",
            f"python -m nmt.classify model={folder} input=FILE output=FILE explain=page.html",
        ]


class _Batches:
    def __init__(self, documents: Documents, gold: np.ndarray, order: list[np.ndarray]) -> None:
        self.documents, self.gold, self.order = documents, gold, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> TextBatch:
        return collate(self.documents, self.order[i], self.gold)


def _fingerprint(part: Labelled) -> str:
    return fingerprint(Pairs(part.texts, ["\t".join(row) for row in part.labels], part.name))
