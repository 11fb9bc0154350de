"""Training text of any size: read, filtered and encoded once, in constant memory, into files that
all processes that train on them map into their memory.

A store is a folder in the cache. Its name is a hash of the content and of what was done to it:

    source.text, source.offsets, target…, links…    lines, and the place of each in the file
    kept                                            numbers of the lines that are not duplicates
    pieces-…/source.ids, source.offsets, target…    ids of the lines, a folder for each tokenizer
"""

import hashlib
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from nmt.data import Pairs, Selection, Text, View
from nmt.data.filters import Filters
from nmt.data.lines import CHUNK
from nmt.data.ragged import Corpus, Ragged, encode, id_type
from nmt.data.stream import Stream, in_memory
from nmt.data.worker_processes import ordered_map
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.storage.cache import build_once, cache_folder
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)
VERSION = 1
"""Version of the on-disk format; part of the cache key."""
AUTO = 200_000_000
"""Bytes of training text above which store=auto stores it."""


class StoredText(View):
    """Lines in a file: UTF-8 with a newline after each, and the offset of each."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file = os.open(folder / f"{name}.text", os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._offsets = _mapped(folder / f"{name}.offsets", np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredText, (self._folder, self._name)  # another process opens the file itself

    def __len__(self) -> int:
        return max(0, len(self._offsets) - 1)

    def line(self, i: int) -> str:
        return self.lines(range(i, i + 1))[0]

    def lines(self, rows: range) -> list[str]:
        if not rows or rows.step != 1:
            return super().lines(rows)
        begin = int(self._offsets[rows.start])
        end = int(self._offsets[rows.stop])
        text = os.pread(self._file, end - begin, begin)  # not mapped: it is read once
        return text.decode("utf-8", "surrogatepass").split("\n")[:-1]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]


@dataclass(frozen=True)
class Storing:
    """Keeps the pairs of a data set in memory or in a store, as `nmt.data.stream.Keep`.

    where: auto, memory or disk; auto stores training text of more than AUTO bytes.
    filters: filters of training text.
    """

    where: str
    filters: Filters

    def __call__(self, stream: Stream, training: bool) -> Pairs:
        if self.where == "memory" or (self.where == "auto" and stream.size <= AUTO):
            return in_memory(stream)
        filters = self.filters if training else Filters()
        key = f"{VERSION} {stream.digest()} {filters.key}"
        folder = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:32]
        first = next(stream.read(), None)
        if first is None:
            raise UserError(f"{stream.name}: {stream.empty}")
        build = partial(_write_text, stream=stream, filters=filters)
        dropped = build_once(folder, f"store of {stream.name}", build)
        texts: dict[str, Text] = {name: StoredText(folder, name) for name in _columns(first)}
        before = len(texts["source"]) + sum(dropped.values()) - dropped.get("duplicate", 0)
        if filters.drop_duplicates:
            kept = _mapped(folder / "kept", np.uint32)
            texts = {name: Selection(text, kept) for name, text in texts.items()}
        filters.report(stream.name, before, len(texts["source"]), dropped)
        log.info("stored text: %s", folder)
        return Pairs(
            texts["source"], texts["target"], stream.name, texts.get("links"), store=folder
        )


def encoded(pairs: Pairs, tokenizer: Tokenizer) -> Corpus:
    """Stored pairs as ids, which are stored beside them."""
    assert pairs.store is not None
    key = repr((VERSION, tokenizer.models, tokenizer.lowercase, tokenizer.columns))
    folder = pairs.store / f"pieces-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    build = partial(_write_ids, pairs=pairs, tokenizer=tokenizer)
    build_once(folder, f"encoded text of {pairs.name}", build)

    def mapped(name: str, dtype: Any) -> Ragged:
        offsets = _mapped(folder / f"{name}.offsets", np.int64)
        return Ragged(_mapped(folder / f"{name}.ids", dtype), offsets)

    return Corpus(
        source=mapped("source", id_type(tokenizer.source_ids)),
        target=mapped("target", id_type(tokenizer.target_size)),
        links=None if pairs.links is None else mapped("links", np.uint32),
    )


@dataclass(frozen=True)
class Column:
    """Rows of a column: their bytes, and the length of each in bytes or ids."""

    data: bytes
    lengths: np.ndarray


@dataclass(frozen=True)
class Chunk:
    """Rows of all columns, made by a process of its own.

    columns: rows by the name of the column.
    dropped: number of pairs that were dropped, by the reason.
    hashes: a hash for each pair, if duplicates are dropped.
    """

    columns: Mapping[str, Column]
    dropped: Mapping[str, int] = field(default_factory=dict)
    hashes: bytes = b""


def _write_text(folder: Path, stream: Stream, filters: Filters) -> dict[str, int]:
    """Writes the pairs of a stream that pass the filters. Returns how many do not."""
    dropped: Counter[str] = Counter()
    hashes = []
    chunks = ordered_map(partial(_text_chunk, filters), stream.read())
    for chunk in _written(folder, "text", chunks):
        dropped.update(chunk.dropped)
        hashes.append(chunk.hashes)
    if filters.drop_duplicates:
        pair_hashes = np.frombuffer(b"".join(hashes), np.uint64)
        kept = np.sort(np.unique(pair_hashes, return_index=True)[1]).astype(np.uint32)
        kept.tofile(folder / "kept")
        dropped["duplicate"] = len(pair_hashes) - len(kept)
    return dropped


def _write_ids(folder: Path, pairs: Pairs, tokenizer: Tokenizer) -> dict[str, int]:
    """Writes the ids of pairs."""
    began = time.monotonic()
    ranges = (slice(start, start + CHUNK) for start in range(0, len(pairs), CHUNK))
    chunks = ordered_map(partial(_ids_chunk, pairs, tokenizer), ranges)
    with Progress("encoding", len(pairs), "pairs") as step:
        for chunk in _written(folder, "ids", chunks):
            step(len(chunk.columns["source"].lengths))
    seconds = time.monotonic() - began
    log.info(
        "encoded %s pairs in %.0f s (%s pairs/s)",
        f"{len(pairs):,}",
        seconds,
        f"{len(pairs) / seconds:,.0f}",
    )
    return {}


def _written(folder: Path, kind: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Appends chunks to the files NAME.kind and NAME.offsets of their columns; yields each chunk."""
    files: dict[str, tuple[IO[bytes], IO[bytes]]] = {}
    ends: Counter[str] = Counter()
    with ExitStack() as stack:
        for chunk in chunks:
            for name, column in chunk.columns.items():
                if name not in files:
                    data_file = stack.enter_context(open(folder / f"{name}.{kind}", "wb"))
                    offsets_file = stack.enter_context(open(folder / f"{name}.offsets", "wb"))
                    offsets_file.write(np.zeros(1, np.int64).tobytes())
                    files[name] = data_file, offsets_file
                ids_output, offsets_output = files[name]
                ids_output.write(column.data)
                offsets = ends[name] + np.cumsum(column.lengths, dtype=np.int64)
                offsets_output.write(offsets.tobytes())
                ends[name] += int(column.lengths.sum())
            yield chunk


def _columns(pairs: Pairs) -> dict[str, Text]:
    """The texts of pairs by name."""
    texts = {"source": pairs.source, "target": pairs.target}
    return texts if pairs.links is None else {**texts, "links": pairs.links}


def _text_chunk(filters: Filters, pairs: Pairs) -> Chunk:
    """The pairs that pass the filters, as bytes."""
    kept, dropped = filters.sift(pairs.source, pairs.target)
    columns = {}
    lines: dict[str, list[bytes]] = {}
    for name, text in _columns(pairs).items():
        lines[name] = [text[i].encode("utf-8", "surrogatepass") + b"\n" for i in kept]
        columns[name] = Column(b"".join(lines[name]), np.array([*map(len, lines[name])], np.int64))
    hashes = b""
    if filters.drop_duplicates:
        hashes = b"".join(
            hashlib.blake2b(source + target, digest_size=8).digest()
            for source, target in zip(lines["source"], lines["target"], strict=True)
        )
    return Chunk(columns, dropped, hashes)


def _ids_chunk(pairs: Pairs, tokenizer: Tokenizer, rows: slice) -> Chunk:
    """The ids of some pairs, as bytes."""
    corpus = encode(_loaded(pairs, rows), tokenizer)
    columns = {}
    for name in _columns(pairs):
        ragged = getattr(corpus, name)
        columns[name] = Column(ragged.ids.tobytes(), ragged.lengths)
    return Chunk(columns)


def _loaded(pairs: Pairs, rows: slice) -> Pairs:
    texts: dict[str, Any] = {name: text[rows] for name, text in _columns(pairs).items()}
    return Pairs(**texts, name=pairs.name)


def chunk_of(pairs: Pairs, indices: np.ndarray) -> Pairs:
    """Some pairs, as lists."""
    chunk = pairs.select(indices.tolist())
    return replace(chunk, source=list(chunk.source), target=list(chunk.target))


def _mapped(file: Path, dtype: Any) -> np.ndarray:
    """A file's numbers as a plain array, which is faster to slice than a memmap."""
    if not file.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r"))
