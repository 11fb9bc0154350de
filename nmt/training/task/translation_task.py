"""Training to translate: parallel text, an objective, and BLEU of greedy translations to choose the best weights."""

from __future__ import annotations

import hashlib
import logging
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.data import Pairs, Splits
from nmt.data.batching import Batching, collate
from nmt.data.filters import fingerprint
from nmt.data.mixing import Mixing
from nmt.data.preparation import EpochBatches, Prepared
from nmt.data.ragged import Corpus
from nmt.drawing.attention_map import write_map
from nmt.foundation.errors import typed
from nmt.foundation.extras import installed
from nmt.foundation.interfaces import Batch, Loss, Search
from nmt.inference.explanations.pointing_game import pointing
from nmt.inference.output_formats import one_line
from nmt.inference.translator import Translator
from nmt.metric import Metric
from nmt.model import Objective
from nmt.model.seq2seq import Seq2Seq
from nmt.search.greedy import Greedy
from nmt.storage.checkpoint import tokenizer_parts
from nmt.tokenizer.words import Units
from nmt.training.task import Task

log = logging.getLogger(__name__)
SAMPLES = 5
"""Validation sentences that are shown to who watches the training."""


def fingerprints(splits: Splits) -> dict[str, str]:
    """What identifies the text that a run learns from and is chosen by."""
    parts = {"train": splits.train, "validation": splits.validation, **splits.more_validation}
    if splits.mixture is None:
        return {name: fingerprint(pairs) for name, pairs in parts.items()}
    del parts["train"]
    corpora = [fingerprint(pairs) for pairs in splits.mixture.corpora.values()]
    mixture = hashlib.sha256("\0".join([*corpora, splits.mixture.settings]).encode()).hexdigest()
    return {"train": mixture, **{name: fingerprint(pairs) for name, pairs in parts.items()}}


class TranslationTask(Task):
    """See `Task`. At most `max_validation` sentences (0: all) are translated to validate; `search` translates the test
    part. `options` are those of `Translator`."""

    command, unit = "train", "target tokens"
    network: Seq2Seq

    def __init__(
        self,
        data: Prepared,
        network: Seq2Seq,
        objective: Objective,
        *,
        batching: Batching,
        metric: Metric,
        search: Search,
        seed: int,
        max_validation: int,
        options: Mapping[str, Any],
    ) -> None:
        self.data, self.network, self._objective = data, network, objective
        self.batching, self.judge, self.search = batching, metric, search
        self.seed, self.max_validation, self.options = seed, max_validation, options
        self.device = next(network.parameters()).device
        self.metric = metric.name
        self._planned: tuple[int, EpochBatches] | None = None
        mixture = data.splits.mixture
        self.mixing = None
        if mixture is not None:
            usual = batching.usual(data.train.source.lengths, data.train.target.lengths)
            self.mixing = Mixing.of(mixture, data.kept, seed, usual)
            self.epochs = self.mixing.epochs
            for line in self.mixing.described():
                log.info("mixture: %s", line)
        if data.tokenizer.lowercase and not metric.lowercase:
            log.warning(
                "tokenizer.lowercase=true, but references are compared as they are: set metric.lowercase=true too"
            )
        splits = data.splits
        self.title = f"{type(network.decoder).__name__} · {' → '.join(splits.languages)}"
        self.fingerprints = fingerprints(splits)
        tokenizer_meta, self.tensors = tokenizer_parts(data.tokenizer)
        self.meta = {"tokenizer": tokenizer_meta, "languages": splits.languages}

    def introduction(self) -> tuple[str, str]:
        splits, tokenizer, decoder = self.data.splits, self.data.tokenizer, self.network.decoder
        sizes = f"{tokenizer.source_size:,}/{tokenizer.target_size:,}"
        validation = " + ".join(
            f"{len(pairs):,}" for pairs in (splits.validation, *splits.more_validation.values())
        )
        score = type(decoder.attention.score).__name__.lower() if decoder.attends else "none"
        return (
            f"{len(self.data.kept):,} training pairs, {validation} validation, {len(splits.test or ()):,} "
            f"test ({' → '.join(splits.languages)}); vocabulary {sizes}; "
            f"padding {100 * self.batches(0).padding:.1f} %",
            f"{type(decoder).__name__.lower()} with {score}, {decoder.cell_name} cells",
        )

    def objective(self, network: Seq2Seq, batch: Batch, update: int, total: int) -> Loss:
        return self._objective(network, batch, update, total)

    def better(self, new: float, old: float | None) -> bool:
        return self.judge.better(new, old)

    def batches(self, epoch: int) -> EpochBatches:
        if self._planned is None or self._planned[0] != epoch:
            reader, made = (
                self.network.encoder.reader,
                bool(self.data.tokenizer.sampling) or self.device.type == "cuda",
            )
            modified = self.mixing is not None and any(
                stage.modifiers for stage in self.mixing.mixture.stages
            )
            batches = EpochBatches(
                self.data,
                self.batching,
                self.seed,
                epoch,
                reader,
                ahead=int(made or modified),
                mixing=self.mixing,
            )
            self._planned = epoch, batches
        return self._planned[1]

    def validate(self) -> dict[str, float]:
        """Teacher-forced loss (nats per token, no smoothing) and the metrics of greedy translations; those of further
        validation sets under their names."""
        splits, found = self.data.splits, dict[str, float]()
        self.answers, figures = self._judged(self.data.validation, splits.validation)
        if self.watched:
            self._show(splits.validation)
        for name, pairs in splits.more_validation.items():
            _, others = self._judged(self.data.beside[name], pairs)
            found |= {f"{name}/{figure}": value for figure, value in others.items()}
        return {**figures, **found}

    def _judged(self, corpus: Corpus, part: Pairs) -> tuple[list[str], dict[str, float]]:
        """Translations of a validation set, and its figures."""
        total = tokens = 0.0
        lengths = corpus.source.lengths, corpus.target.lengths
        with torch.inference_mode():
            for indices in self.ranks.share(self.batching.in_order(*lengths)):
                batch = collate(corpus, indices, self.network.encoder.reader)
                loss = self.network(self.objective, batch.to(self.device), 0)
                total, tokens = total + float(loss.nll), tokens + loss.num_tokens
        total, tokens = self.ranks.sums(total, tokens)
        most = self.max_validation or len(part)
        answers = self._answers(Greedy(), part.source[:most])
        others = [other[:most] for other in part.more_references]
        scores = self.judge.score(answers, part.target[:most], others=others)
        return answers, {
            "loss": total / tokens,
            **{name: result.score for name, result in scores.items()},
        }

    def _show(self, part: Pairs) -> None:
        """A few sentences for who watches the training."""
        rows = [("source", "reference", "translation"), ("---",) * 3]
        rows += list(zip(part.source, part.target, self.answers, strict=False))[:SAMPLES]
        self.samples = "\n".join(
            f"| {' | '.join(cell.replace('|', ' ') for cell in row)} |" for row in rows
        )
        translator, lines = self._translator(Greedy()), self._shown_of(part, 1)
        if translator.attends and lines:
            maps = translator.attention_maps(
                lines, translator.translations(lines, details_of=1), units="piece"
            )
            self.looked = maps[0] if maps else None

    def _shown_of(self, part: Pairs, count: int) -> list[str]:
        """Source lines whose attention is drawn: pictures as they come, or sentences of middling length."""
        if self.data.splits.pictures:
            return list(part.source[:count])
        return _of_middling_length(part, count)

    def _translator(self, search: Search) -> Translator:
        return Translator(self.network, self.data.tokenizer, search, **self.options)

    def _answers(self, search: Search, lines: Sequence[str]) -> list[str]:
        """Translations, each on one line; every rank makes some of them, and has all."""
        mine = self._translator(search).translate(list(self.ranks.share(lines)))
        return self.ranks.whole(one_line(text) for text in mine)

    @property
    def _last_part(self) -> tuple[str, Pairs]:
        splits = self.data.splits
        return ("test", splits.test) if splits.test else ("validation", splits.validation)

    def test(self, write: Callable[[str, str], None]) -> tuple[str, dict[str, Any], list[str]]:
        (name, part), splits = self._last_part, self.data.splits
        began = time.monotonic()
        hypotheses = self._answers(self.search, part.source)
        seconds = time.monotonic() - began
        scores = self.judge.score(
            hypotheses, part.target, others=part.more_references, orders=splits.pictures
        )
        further = [
            (f"{name}.reference{k}", other) for k, other in enumerate(part.more_references, 2)
        ]
        sides = (
            (name, hypotheses),
            (f"{name}.source", part.source),
            (f"{name}.reference", part.target),
        )
        for file, lines in (*sides, *further):
            write(f"{file}.txt", "".join(one_line(line) + "\n" for line in lines))
        if part.regions is not None and self.network.decoder.attends:
            scores["pointing"] = pointing(self._translator(self.search), part)
        results = {
            "scores": {metric: vars(result) for metric, result in scores.items()},
            "translation_seconds": round(seconds, 2),
        }
        return (
            name,
            results,
            [f"{m} {result.score:.2f}   {result.signature}" for m, result in scores.items()],
        )

    def draw(self, folder: Path) -> None:
        """The attention over a few validation sentences."""
        translator = self._translator(self.search)
        if not translator.attends:
            return
        lines = self._shown_of(self.data.splits.validation, 4)
        found = translator.translations(lines, details_of=1)
        file = folder / ("attention.png" if installed("matplotlib") else "attention.html")
        units: Units = "word" if self.data.splits.pictures else "piece"
        write_map(translator.attention_maps(lines, found, units=units), file)

    def next_commands(self, folder: Path) -> list[str]:
        return [
            f"{_says(self._last_part[1].source[0])} | python -m nmt.translate {typed(model=folder)}",
            f"python -m nmt.translate {typed(model=folder)} input=FILE output=FILE attention_map=map.html",
            f"python -m nmt.evaluate {typed(model=folder)} source=FILE reference=FILE",
        ]


def _says(line: str) -> str:
    """A shell command that prints a line, with the tabs between its columns."""
    columns = line.split("\t")
    if len(columns) == 1:
        return f"echo {shlex.quote(line)}"
    form = r"\t".join(["%s"] * len(columns)) + r"\n"
    return f"printf '{form}' {shlex.join(columns)}"


def _of_middling_length(pairs: Pairs, count: int = 4) -> list[str]:
    """A few sentences that make readable pictures: an even choice from the longest ones below 80 characters."""
    fitting = sorted((line for line in pairs.source if line.strip() and len(line) < 80), key=len)[
        -200:
    ]
    return (
        fitting[:: max(1, len(fitting) // count)][:count]
        if fitting
        else [line for line in pairs.source if line][:1]
    )
