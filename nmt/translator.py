"""Text in, text out: the one path by which everything here translates."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.batching import pad
from nmt.generation import ModelStep
from nmt.interfaces import BOS, Hypothesis, Search
from nmt.packed import GenerationPrecision, Packs, generating
from nmt.ranges import NonNegative, Size
from nmt.seq2seq import Seq2Seq
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)
MAX_WORKERS = 4
"""Batches searched at the same time; beyond that, Python's lock is what they wait for."""


@dataclass(frozen=True)
class Alignment:
    """Attention of one translation: weights[t][s] between target and source pieces, `</s>` last on both sides.
    `weights` is None if the model has no attention."""

    source: list[str]
    target: list[str]
    weights: np.ndarray | None


class Translator:
    """A model, its tokenizer and a search. The model's weights must not change while its translator lives.

    Sentences are encoded, sorted by length, searched in batches of at most `batch_tokens` source positions, and put
    back in order. Longest translation: max_length_factor · source tokens + max_length_offset. Sources longer than
    `max_source` tokens are cut, with a warning.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        search: Search,
        *,
        batch_tokens: Size = 1500,
        max_length_factor: NonNegative = 2.0,
        max_length_offset: Size = 10,
        max_source: Size = 1000,
        precision: GenerationPrecision = "float32",
    ) -> None:
        self.model, self.tokenizer, self.search = model, tokenizer, search
        self.batch_tokens, self.max_source = batch_tokens, max_source
        self.max_length_factor, self.max_length_offset = max_length_factor, max_length_offset
        self.precision, self.packs = precision, Packs(precision)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", **options: Any) -> Translator:
        """The translator of a run directory or checkpoint file. `options`: see `nmt.build.translator`.

        Raises UserError if there is no usable checkpoint.
        """
        from nmt.build import translator

        return translator(str(path), device=device, **options)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def translate(self, lines: Sequence[str]) -> list[str]:
        """One translation per line; an empty line for a line without words."""
        return self.tokenizer.decode(self.best(self.encode(lines)))

    def best(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """Target ids of the best translation of each source; none for an empty one."""
        return [hypotheses[0].tokens if hypotheses else [] for hypotheses in self.search_ids(sources)]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Source ids of each line, cut to `max_source`."""
        rows = self.tokenizer.encode_source(list(lines))
        for i, row in enumerate(rows):
            if len(row) > self.max_source:
                shown = lines[i][:40]
                log.warning('"%s …" has %s tokens: only the first %s are translated', shown, len(row), self.max_source)
                rows[i] = row[: self.max_source]
        return rows

    def search_ids(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """The search's hypotheses for each source; none for an empty one."""
        results: list[list[Hypothesis]] = [[] for _ in sources]
        batches = list(self._batches(sources))
        with self._evaluation(), _workers(self.device, len(batches)) as each:
            for batch, found in zip(batches, each(lambda batch: self._search(sources, batch), batches), strict=True):
                for i, hypotheses in zip(batch, found, strict=True):
                    results[i] = hypotheses
        return results

    @torch.inference_mode()
    def _search(self, sources: Sequence[Sequence[int]], batch: list[int]) -> list[list[Hypothesis]]:
        ids, lengths = (t.to(self.device) for t in pad(sources, batch))
        limits = [int(self.max_length_factor * len(sources[i])) + self.max_length_offset for i in batch]
        with generating(self.packs):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision != "float32"):
                memory = self.model.encode(ids, lengths)
            return self.search(ModelStep(self.model, memory), self.model.decoder.initial(memory), limits)

    @torch.inference_mode()
    def align(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Alignment]:
        """The attention of given translations, by one teacher-forced pass over each pair of ids."""
        results = []
        for source, target in zip(sources, targets, strict=True):
            ids, lengths = (t.to(self.device) for t in pad([source], [0]))
            with self._evaluation(), generating(self.packs):
                weights = self.model.align(ids, lengths, torch.tensor([[BOS, *target]], device=self.device))
            results.append(
                Alignment(
                    source=[*self.tokenizer.source_pieces(list(source)), "</s>"],
                    target=[*self.tokenizer.target_pieces(list(target)), "</s>"],
                    weights=None if weights is None else weights[0].float().cpu().numpy(),
                )
            )
        return results

    def _batches(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        order = sorted((i for i, source in enumerate(sources) if source), key=lambda i: -len(sources[i]))
        batch: list[int] = []
        for i in order:  # the first of a batch is its longest
            if batch and (len(sources[batch[0]]) + 1) * (len(batch) + 1) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    @contextlib.contextmanager
    def _evaluation(self) -> Iterator[None]:
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)


@contextlib.contextmanager
def _workers(device: torch.device, jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` that runs jobs at the same time. On a CPU two threads with a batch each finish sooner than two threads that
    share the small products of one batch and wait for each other after every one of them."""
    threads = torch.get_num_threads()
    workers = min(threads, MAX_WORKERS, jobs)
    if device.type != "cpu" or workers < 2:
        yield map
        return
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
