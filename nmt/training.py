"""One training run, from configuration to results: what `nmt.train` does."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt import build
from nmt import checkpoint as ckpt
from nmt.allocator import keep_freed_memory
from nmt.batching import Batching, collate
from nmt.checkpoint import Checkpoint
from nmt.corpus import fingerprint
from nmt.data import Pairs
from nmt.errors import UserError
from nmt.metrics import Metric, Result
from nmt.progress import ProgressBar, console, set_up_logging
from nmt.run import RunDirectory, versions
from nmt.search.greedy import Greedy
from nmt.seq2seq import Seq2Seq
from nmt.trainer import Progress, Stopped, Trainer
from nmt.translator import Translator

log = logging.getLogger(__name__)


def start(config: dict[str, Any], path: str) -> float:
    """A new run in the folder `path`. Raises UserError if the configuration or the data cannot be used."""
    build.device(config["device"])
    folder = Path(path)
    RunDirectory.claim(folder)
    set_up_logging(folder / "train.log")
    try:
        run = _Run({**config, "run_dir": str(folder)}, folder, None)
    except UserError:  # the data cannot be used: leave no trace
        set_up_logging()
        (folder / "train.log").unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    return run.go()


def resume(path: str, changes: Sequence[str]) -> float:
    """Goes on with a run, by its own configuration and the given key=value changes.

    Raises UserError if there is nothing to resume, or a change would not fit the weights.
    """
    folder = Path(path)
    if not (folder / ckpt.LAST).is_file():
        raise UserError(f"resume={path}: no {ckpt.LAST} in it; there is nothing to go on with")
    saved = ckpt.read(folder / ckpt.LAST)
    config = _changed(saved.meta["config"], changes)
    build.check(config)
    set_up_logging(folder / "train.log")
    progress, most = saved.meta["training"]["progress"], config["trainer"]["max_updates"]
    done = progress["epoch"] >= config["trainer"]["max_epochs"] or 0 < most <= progress["update"]
    if done and (folder / "results.json").is_file():
        log.info("%s is finished (%s epochs). To train it further, add trainer.max_epochs=N", folder, progress["epoch"])
        return progress["best"]
    log.info("resuming %s at update %s", folder, f"{saved.meta['training']['progress']['update']:,}")
    return _Run(config, folder, saved).go()


def _changed(config: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    structure = ("encoder", "decoder", "attention", "model", "tokenizer", "cell")
    for change in changes:
        key = change.partition("=")[0]
        if key.split(".")[0] in structure or ("." not in key and not isinstance(config.get(key), str | int | float)):
            raise UserError(f"{change}: cannot change when resuming (the weights were made for the old value)")
    try:
        merged = OmegaConf.merge(OmegaConf.create(config), OmegaConf.from_dotlist(list(changes)))
    except OmegaConfBaseException as error:
        raise UserError(f"{' '.join(changes)}: {error}") from error
    return OmegaConf.to_container(merged, resolve=True)  # type: ignore[return-value]


class _Run:
    """A run's parts, and what is done with them in order."""

    def __init__(self, config: dict[str, Any], folder: Path, saved: Checkpoint | None) -> None:
        self.config, self.folder, self.saved = config, folder, saved
        keep_freed_memory()
        self.device = build.device(config["device"])
        random.seed(config["seed"])
        np.random.seed(config["seed"])
        torch.manual_seed(config["seed"])
        began = time.monotonic()
        self.data = build.prepare(config, None if saved is None else ckpt.tokenizer_from(saved))
        self.tokenizer = self.data.tokenizer
        prints = {"train": fingerprint(self.data.splits.train), "validation": fingerprint(self.data.splits.validation)}
        if saved is not None and saved.meta["data"] != prints:
            raise UserError(f"resume={folder}: the data has changed since this run began, so it cannot go on with it")
        self.model: Seq2Seq = build.network(config, self.tokenizer.source_size, self.tokenizer.target_size)
        self.model.to(self.device)
        self.trainer: Trainer = build.make(config, "trainer")
        self.trainer.precision = build.usable_precision(self.trainer.precision, self.device)
        self.metric: Metric = build.make(config, "metric")
        self.batching: Batching = build.make(config, "batching")
        tokenizer_meta, tokenizer_tensors = ckpt.tokenizer_parts(self.tokenizer)
        meta = {
            "config": config,
            "tokenizer": tokenizer_meta,
            "languages": self.data.splits.languages,
            "versions": versions(),
            "data": prints,
        }
        at = None if saved is None else saved.meta["training"]["progress"]["update"]
        self.files = RunDirectory(folder, meta, tokenizer_tensors, at)
        if saved is None:
            self.files.describe(config, prints)
        self._introduce(time.monotonic() - began)

    def _introduce(self, seconds: float) -> None:
        splits, first = self.data.splits, build.EpochBatches(self.data, self.batching, self.config["seed"], 0)
        log.info(
            "data: %s training pairs, %s validation, %s test (%s → %s); vocabulary %s/%s; padding %.1f %%; ready in %.1f s",
            f"{len(self.data.kept):,}", f"{len(splits.validation):,}", f"{len(splits.test or ()):,}", *splits.languages,
            f"{self.tokenizer.source_size:,}", f"{self.tokenizer.target_size:,}", 100 * first.padding, seconds,
        )  # fmt: skip
        parameters = sum(p.numel() for p in self.model.parameters())
        names = [type(self.model.decoder).__name__.lower(), str(self.config["attention"].get("_target_", "none"))]
        log.info(
            "model: %s with %s, %s cells, %s parameters; %s on %s",
            names[0], names[1].rpartition(".")[2].lower(), self.config["cell"], f"{parameters:,}",
            self.trainer.precision, self.device,
        )  # fmt: skip

    def go(self) -> float:
        bar = ProgressBar()
        resumed = None if self.saved is None else (self.saved.meta["training"], self.saved.tensors)
        try:
            with bar:
                progress = self.trainer.fit(
                    model=self.model,
                    objective=build.make(self.config, "objective"),
                    optimizer=build.make(self.config, "optimizer", parameters=list(self.model.parameters())),
                    schedule=build.make(self.config, "schedule"),
                    batches=lambda epoch: build.EpochBatches(self.data, self.batching, self.config["seed"], epoch),
                    validate=self.validate,
                    metric=self.metric.name,
                    better=self.metric.better,
                    observers=[bar, self.files],
                    store=self.files,
                    resume=resumed,
                )
        except Stopped:
            self.draw(None)
            log.warning("stopped and saved. Go on with: python -m nmt.train resume=%s", self.folder)
            raise SystemExit(130) from None
        finally:
            self.files.close()
        return self.finish(progress)

    def validate(self) -> dict[str, float]:
        """Teacher-forced loss (nats per token, no smoothing) and the metrics of greedy translations."""
        model, corpus = self.model, self.data.validation
        total = tokens = 0.0
        objective = build.make(self.config, "objective")
        lengths = corpus.source.lengths, corpus.target.lengths
        with torch.inference_mode():
            for indices in self.batching.in_order(*lengths):
                loss = objective(model, collate(corpus, indices).to(self.device), 0)
                total, tokens = total + float(loss.nll), tokens + loss.num_tokens
        part = self.data.splits.validation
        most = self.config["max_validation"] or len(part)
        hypotheses = self.translator(Greedy()).translate(part.source[:most])
        scores = self.metric.score(hypotheses, part.target[:most])
        return {"loss": total / tokens, **{name: result.score for name, result in scores.items()}}

    def translator(self, search: Any) -> Translator:
        return Translator(self.model, self.tokenizer, search, **self.config["translation"])

    def finish(self, progress: Progress) -> float:
        """Tests the best weights, draws, and says what to type next."""
        best = ckpt.read(self.folder / ckpt.BEST)
        ckpt.load_weights(self.model, best.part("model"), best.path)
        name, part = (
            ("test", self.data.splits.test) if self.data.splits.test else ("validation", self.data.splits.validation)
        )
        began = time.monotonic()
        translator = self.translator(build.make(self.config, "search"))
        hypotheses = translator.translate(part.source)
        seconds = time.monotonic() - began
        scores = self.metric.score(hypotheses, part.target)
        self.files.write_text(f"{name}.txt", "".join(line + "\n" for line in hypotheses))
        self.files.write_text(
            "results.json", json.dumps(self._results(name, scores, best.meta, progress, seconds), indent=2)
        )
        self.draw(translator)
        for metric, result in scores.items():
            log.info("%s %s %.2f   %s", name, metric, result.score, result.signature)
        log.info(
            "trained %.0f s, best at update %s; everything is in %s",
            progress.seconds,
            progress.best_update,
            self.folder,
        )
        self._say_next(part)
        chosen = self.metric.name
        return scores[chosen].score if chosen in scores else best.meta["metrics"][chosen]

    def _results(
        self, part: str, scores: Mapping[str, Result], best: Mapping[str, Any], progress: Progress, seconds: float
    ) -> dict[str, Any]:
        return {
            "part": part,
            "scores": {name: vars(result) for name, result in scores.items()},
            "validation": best["metrics"],
            "best_update": best["update"],
            "updates": progress.update,
            "training_seconds": round(progress.seconds, 1),
            "translation_seconds": round(seconds, 2),
            "seed": self.config["seed"],
            "data": self.files.meta["data"],
            "versions": self.files.meta["versions"],
        }

    def draw(self, translator: Translator | None) -> None:
        """Learning curve, and with a translator the attention over a few validation sentences."""
        from nmt import plots

        records = self.files.records()
        if any(record["kind"] == "validation" for record in records):
            title = f"{type(self.model.decoder).__name__} · {' → '.join(self.data.splits.languages)}"
            plots.learning_curve(records, self.metric.name, self.folder / "learning_curve.png", title)
        if translator is None:
            return
        shown = [t for t in translator.translations(_of_middling_length(self.data.splits.validation)) if t.hypotheses]
        found = translator.align([t.source for t in shown], [t.hypotheses[0].tokens for t in shown])
        alignments = [a for a in found if a.weights is not None]
        if alignments:
            plots.attention_maps(alignments, self.folder / "attention.png")

    def _say_next(self, part: Pairs) -> None:
        example = part.source[0].replace('"', '\\"')
        console.print("\nNext:", style="bold", highlight=False)
        for command in (
            f'echo "{example}" | python -m nmt.translate model={self.folder}',
            f"python -m nmt.translate model={self.folder} input=FILE output=FILE attention_map=map.html",
            f"python -m nmt.evaluate model={self.folder} source=FILE reference=FILE",
            f"tensorboard --logdir {self.folder}",
        ):
            console.print("  " + command, highlight=False, markup=False, soft_wrap=True)


def _of_middling_length(pairs: Pairs, count: int = 4) -> list[str]:
    """A few sentences that make readable pictures: of the longest below 80 characters, evenly spread."""
    fitting = sorted((line for line in pairs.source if line.strip() and len(line) < 80), key=len)[-200:]
    return fitting[:: max(1, len(fitting) // count)][:count] if fitting else [line for line in pairs.source if line][:1]
