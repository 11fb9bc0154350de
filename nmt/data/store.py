"""Training text of any size: read, filtered and encoded once, in constant memory, into files that are then mapped into the
memory of all processes that train on them.

A store is a folder in the cache whose name is a hash of the content and of what was done to it:

    source.text, source.offsets, target…, links…     the kept lines, and where each begins (text.py says the same of ids)
    kept                                             which of them are not duplicates, if those are dropped
    pieces-…/source.ids, source.offsets, target…     their ids under a tokenizer, a folder for each tokenizer
    journal.json                                     how far the work is, and what was dropped; then sums of the files
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data import Pairs, Selection, View
from nmt.data.filters import Filters
from nmt.data.journal import Journal, built
from nmt.data.lines import CHUNK
from nmt.data.pool import in_order
from nmt.data.ragged import Corpus, Ragged, encode, id_type
from nmt.data.stream import Stream, in_memory
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)
VERSION = 1
"""Of what is written: other numbers are other stores."""
AUTO = 200_000_000
"""Bytes of training text above which it is stored."""


def cache_folder() -> Path:
    """Where stores are: $NMT_CACHE, else the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NMT_CACHE") or Path(base) / "nmt")


class StoredText(View):
    """Lines in a file: UTF-8 with a newline after each, and the offset of each."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._file = os.open(folder / f"{name}.text", os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._offsets = _mapped(folder / f"{name}.offsets", np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredText, (self._folder, self._name)  # another process opens it itself

    def __len__(self) -> int:
        return max(0, len(self._offsets) - 1)

    def line(self, i: int) -> str:
        return self.lines(range(i, i + 1))[0]

    def lines(self, rows: range) -> list[str]:
        if not rows or rows.step != 1:
            return super().lines(rows)
        begin, end = int(self._offsets[rows.start]), int(self._offsets[rows.stop])
        whole = os.pread(
            self._file, end - begin, begin
        )  # not mapped: what is read once need not stay
        return whole.decode("utf-8", "surrogatepass").split("\n")[:-1]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]


@dataclass(frozen=True)
class Storing:
    """Keeps the pairs of a data set in a store, as `nmt.data.stream.Keep`. `wanted`: auto, memory or disk; auto stores
    training text of more than AUTO bytes. Training text is filtered."""

    wanted: str
    filters: Filters

    def __call__(self, stream: Stream, training: bool) -> Pairs:
        if self.wanted == "memory" or (self.wanted == "auto" and stream.size <= AUTO):
            return in_memory(stream)
        filters = self.filters if training else Filters()
        key = f"{VERSION} {stream.digest()} {sorted(vars(filters).items())}"
        folder = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:32]
        first = next(stream.read(), None)
        if first is None:
            raise UserError(f"{stream.name}: {stream.empty}")
        names = ["source", "target", *([] if first.links is None else ["links"])]
        files = {f"{name}.{kind}": None for name in names for kind in ("text", "lengths")}
        files |= {"hashes": None} if filters.drop_duplicates else {}

        def build(journal: Journal) -> None:
            chunks = itertools.islice(stream.read(), journal.items, None)
            journal.write(in_order(partial(_kept, filters), chunks))
            for name in names:
                _offsets(folder, name)
            if filters.drop_duplicates:
                hashes = np.fromfile(folder / "hashes", np.uint64)
                kept = np.sort(np.unique(hashes, return_index=True)[1]).astype(np.uint32)
                journal.counts["duplicate"] = len(hashes) - len(kept)
                kept.tofile(folder / "kept")

        journal = built(folder, files, f"store of {stream.name}", build)
        texts = {name: StoredText(folder, name) for name in names}
        chosen = _mapped(folder / "kept", np.uint32) if filters.drop_duplicates else None
        source, target, links = (
            None
            if name not in texts
            else texts[name]
            if chosen is None
            else Selection(texts[name], chosen)
            for name in ("source", "target", "links")
        )
        assert source is not None
        assert target is not None
        before = len(texts["source"]) + sum(
            count for why, count in journal.counts.items() if why != "duplicate"
        )
        filters.report(stream.name, before, len(source), journal.counts)
        log.info("stored text: %s", folder)
        return Pairs(source, target, stream.name, links, store=folder)


def encoded(pairs: Pairs, tokenizer: Tokenizer) -> Corpus:
    """Stored pairs as ids, which are stored beside them."""
    home = pairs.store
    assert home is not None
    key = repr((VERSION, tokenizer.models, tokenizer.lowercase, tokenizer.columns))
    folder = home / f"pieces-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    sides = {"source": id_type(tokenizer.source_ids), "target": id_type(tokenizer.target_size)}
    sides |= {} if pairs.links is None else {"links": np.uint32}
    files = {f"{name}.{kind}": None for name in sides for kind in ("ids", "lengths")}

    def build(journal: Journal) -> None:
        done = journal.items * CHUNK
        with Progress("encoding", len(pairs), "pairs") as step:
            step(done)
            ranges = (
                range(start, min(start + CHUNK, len(pairs)))
                for start in range(done, len(pairs), CHUNK)
            )
            journal.write(in_order(partial(_pieces, pairs, tokenizer), ranges), lambda: step(CHUNK))
        for name in sides:
            _offsets(folder, name)

    began = time.monotonic()
    journal = built(folder, files, f"encoded text of {pairs.name}", build)
    if journal.fresh:
        seconds = time.monotonic() - began
        log.info(
            "encoded %s pairs in %.0f s (%s pairs/s)",
            f"{len(pairs):,}",
            seconds,
            f"{len(pairs) / seconds:,.0f}",
        )
    found = {
        name: Ragged(
            _mapped(folder / f"{name}.ids", kind), _mapped(folder / f"{name}.offsets", np.int64)
        )
        for name, kind in sides.items()
    }
    return Corpus(found["source"], found["target"], found.get("links"))


# What is done to a chunk, in a process of its own


def _kept(filters: Filters, chunk: Pairs) -> tuple[dict[str, bytes], dict[str, int]]:
    """A chunk's pairs that pass the filters, as bytes for each file, and how many do not."""
    keep, counts = filters.judged(chunk.source, chunk.target)
    texts = {
        "source": chunk.source,
        "target": chunk.target,
        **({} if chunk.links is None else {"links": chunk.links}),
    }
    found = {}
    lines: dict[str, list[bytes]] = {}
    for name, text in texts.items():
        lines[name] = [text[i].encode("utf-8", "surrogatepass") + b"\n" for i in keep]
        found[f"{name}.text"] = b"".join(lines[name])
        found[f"{name}.lengths"] = np.fromiter(
            map(len, lines[name]), np.uint32, len(keep)
        ).tobytes()
    if filters.drop_duplicates:
        pairs = zip(lines["source"], lines["target"], strict=True)
        hashes = [hashlib.blake2b(s + t, digest_size=8).digest() for s, t in pairs]
        found["hashes"] = b"".join(hashes)
    return found, counts


def _pieces(
    pairs: Pairs, tokenizer: Tokenizer, rows: range
) -> tuple[dict[str, bytes], dict[str, int]]:
    """The ids of some pairs, as bytes for each file."""
    side = slice(rows.start, rows.stop)
    chunk = Pairs(
        pairs.source[side],
        pairs.target[side],
        pairs.name,
        None if pairs.links is None else pairs.links[side],
    )
    corpus = encode(chunk, tokenizer)
    texts = {
        "source": corpus.source,
        "target": corpus.target,
        **({} if corpus.links is None else {"links": corpus.links}),
    }
    found = {}
    for name, ragged in texts.items():
        assert isinstance(ragged, Ragged)
        found[f"{name}.ids"] = ragged.ids.tobytes()
        found[f"{name}.lengths"] = ragged.lengths.astype(np.uint32).tobytes()
    return found, {}


def _offsets(folder: Path, name: str) -> None:
    """Where each line begins, and the last ends, from the lengths."""
    lengths = _mapped(folder / f"{name}.lengths", np.uint32)
    with open(folder / f"{name}.offsets", "wb") as file:
        np.zeros(1, np.int64).tofile(file)
        end = 0
        for start in range(0, len(lengths), 2**20):
            ends = end + np.cumsum(lengths[start : start + 2**20], dtype=np.int64)
            ends.tofile(file)
            end = int(ends[-1])


def _mapped(file: Path, kind: Any) -> np.ndarray:
    if not file.stat().st_size:  # nothing can be mapped
        return np.empty(0, kind)
    return np.memmap(file, kind, "r")


def chunk_of(pairs: Pairs, indices: np.ndarray) -> Pairs:
    """Some pairs, as lists."""
    found = pairs.select(indices.tolist())
    return replace(found, source=list(found.source), target=list(found.target))
