"""Training to translate: parallel text, teacher forcing, and BLEU of greedy translations to choose the best weights."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nmt.configuration import build
from nmt.storage import checkpoint as ckpt
from nmt.report.attention_map import attention_maps, write_map
from nmt.corpus.batching import Batching, collate
from nmt.storage.checkpoint import Checkpoint
from nmt.corpus.ragged import fingerprint
from nmt.data import Pairs
from nmt.foundation.interfaces import Batch, Loss
from nmt.metric import Metric
from nmt.corpus.preparation import EpochBatches, prepare
from nmt.training.run_directory import RunDirectory
from nmt.search.greedy import Greedy
from nmt.network.seq2seq import Seq2Seq
from nmt.task import Task
from nmt.inference.translator import Translator


class Translation(Task):
    """See `Task`."""

    command, unit = "train", "target tokens"

    def __init__(self, config: Mapping[str, Any], device: torch.device, saved: Checkpoint | None) -> None:
        self.config, self.device = config, device
        self.data = prepare(config, None if saved is None else ckpt.tokenizer_from(saved))
        self.tokenizer, splits = self.data.tokenizer, self.data.splits
        self.model: Seq2Seq = build.network(config, self.tokenizer.source_size, self.tokenizer.target_size).to(device)
        self._objective = build.make(config, "objective")
        self.batching: Batching = build.make(config, "batching")
        self.judge: Metric = build.make(config, "metric")
        self.metric = self.judge.name
        self.title = f"{type(self.model.decoder).__name__} · {' → '.join(splits.languages)}"
        self.fingerprints = {"train": fingerprint(splits.train), "validation": fingerprint(splits.validation)}
        tokenizer_meta, self.tensors = ckpt.tokenizer_parts(self.tokenizer)
        self.meta = {"tokenizer": tokenizer_meta, "languages": splits.languages}

    @staticmethod
    def check(config: Mapping[str, Any]) -> None:
        build.check(config)

    def introduction(self) -> list[str]:
        splits = self.data.splits
        sizes = f"{self.tokenizer.source_size:,}/{self.tokenizer.target_size:,}"
        names = [type(self.model.decoder).__name__.lower(), str(self.config["attention"].get("_target_", "none"))]
        return [
            f"{len(self.data.kept):,} training pairs, {len(splits.validation):,} validation, {len(splits.test or ()):,} "
            f"test ({' → '.join(splits.languages)}); vocabulary {sizes}; "
            f"padding {100 * self.batches(0).padding:.1f} %",
            f"{names[0]} with {names[1].rpartition('.')[2].lower()}, {self.config['cell']} cells",
        ]

    def objective(self, model: Seq2Seq, batch: Batch, update: int) -> Loss:
        return self._objective(model, batch, update)

    def better(self, new: float, old: float | None) -> bool:
        return self.judge.better(new, old)

    def batches(self, epoch: int) -> EpochBatches:
        return EpochBatches(self.data, self.batching, self.config["seed"], epoch)

    def validate(self) -> dict[str, float]:
        """Teacher-forced loss (nats per token, no smoothing) and the metrics of greedy translations."""
        model, corpus = self.model, self.data.validation
        total = tokens = 0.0
        lengths = corpus.source.lengths, corpus.target.lengths
        with torch.inference_mode():
            for indices in self.batching.in_order(*lengths):
                loss = self.objective(model, collate(corpus, indices).to(self.device), 0)
                total, tokens = total + float(loss.nll), tokens + loss.num_tokens
        part = self.data.splits.validation
        most = self.config["max_validation"] or len(part)
        hypotheses = self._translator(Greedy()).translate(part.source[:most])
        scores = self.judge.score(hypotheses, part.target[:most])
        return {"loss": total / tokens, **{name: result.score for name, result in scores.items()}}

    def _translator(self, search: Any) -> Translator:
        return Translator(self.model, self.tokenizer, search, **self.config["translation"])

    @property
    def _last_part(self) -> tuple[str, Pairs]:
        splits = self.data.splits
        return ("test", splits.test) if splits.test else ("validation", splits.validation)

    def test(self, files: RunDirectory) -> tuple[str, dict[str, Any], list[str]]:
        name, part = self._last_part
        began = time.monotonic()
        hypotheses = self._translator(build.make(self.config, "search")).translate(part.source)
        seconds = time.monotonic() - began
        scores = self.judge.score(hypotheses, part.target)
        files.write_text(f"{name}.txt", "".join(line + "\n" for line in hypotheses))
        results = {
            "scores": {metric: vars(result) for metric, result in scores.items()},
            "translation_seconds": round(seconds, 2),
        }
        return name, results, [f"{m} {result.score:.2f}   {result.signature}" for m, result in scores.items()]

    def draw(self, folder: Path) -> None:
        """The attention over a few validation sentences."""
        translator = self._translator(build.make(self.config, "search"))
        if not translator.attends:
            return
        lines = _of_middling_length(self.data.splits.validation)
        write_map(attention_maps({"": translator}, lines, translator.translate(lines)), folder / "attention.png")

    def next_commands(self, folder: Path) -> list[str]:
        return [
            f"echo {shlex.quote(self._last_part[1].source[0])} | python -m nmt.translate model={folder}",
            f"python -m nmt.translate model={folder} input=FILE output=FILE attention_map=map.html",
            f"python -m nmt.evaluate model={folder} source=FILE reference=FILE",
        ]


def _of_middling_length(pairs: Pairs, count: int = 4) -> list[str]:
    """A few sentences that make readable pictures: of the longest below 80 characters, evenly spread."""
    fitting = sorted((line for line in pairs.source if line.strip() and len(line) < 80), key=len)[-200:]
    return fitting[:: max(1, len(fitting) // count)][:count] if fitting else [line for line in pairs.source if line][:1]
