"""On-disk storage for training data of any size: read, filtered and encoded once, in constant
memory.

A store is a folder in the cache, named by a hash of the content and the filters. All training
processes share its files by memory mapping:

    source.text, source.offsets, target…, links…    lines, and the position of each in the file
    kept                                            indices of lines without duplicates
    pieces-…/source.ids, source.offsets, target…    token ids, one folder per tokenizer
"""

import hashlib
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data import Pairs, Selection, Text, View
from nmt.data.filters import Filters
from nmt.data.lines import CHUNK
from nmt.data.parts import Stream, in_memory
from nmt.data.ragged import Corpus, Ragged, encode, id_type, offsets_of
from nmt.data.worker_processes import ordered_map
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.storage.cache import build_once, cache_folder
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)
VERSION = 1
"""Version of the on-disk format of stores; part of the cache key."""
AUTO = 200_000_000
"""Size of training files in bytes above which store=auto uses the disk."""


class StoredText(View):
    """Lines of text in a UTF-8 file, with the byte offset of each line in a second file.

    folder: folder of the files NAME.text and NAME.offsets
    name: base name NAME of both files
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file = os.open(folder / f"{name}.text", os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._offsets = _mapped(folder / f"{name}.offsets", np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredText, (self._folder, self._name)  # each process opens its own file

    def __len__(self) -> int:
        return max(0, len(self._offsets) - 1)

    def line(self, i: int) -> str:
        return self.lines(range(i, i + 1))[0]

    def lines(self, rows: range) -> list[str]:
        if not rows or rows.step != 1:
            return super().lines(rows)
        begin = int(self._offsets[rows.start])
        end = int(self._offsets[rows.stop])
        # The file is not memory-mapped, since text is read once.
        text = os.pread(self._file, end - begin, begin)
        return text.decode("utf-8", "surrogatepass").split("\n")[:-1]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]


@dataclass(frozen=True)
class Storing:
    """Storage of sentence pairs in memory or on disk; the argument `keep` of a data source.

    where: auto, memory or disk; auto uses the disk for training files above AUTO bytes
    filters: filters of the training pairs
    """

    where: str
    filters: Filters

    def __call__(self, stream: Stream[Pairs], training: bool) -> Pairs:
        if self.where == "memory" or (self.where == "auto" and stream.size <= AUTO):
            return in_memory(stream)
        first = next(stream.read(), None)
        if first is None:
            raise UserError(f"{stream.name}: {stream.empty}")
        filters = self.filters if training else Filters()  # only training pairs are filtered
        key = f"{VERSION} {stream.digest()} {filters.key}"
        folder = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:32]
        build = partial(_write_text, stream=stream, filters=filters)
        dropped = build_once(folder, f"store of {stream.name}", build)
        texts: dict[str, Text] = {name: StoredText(folder, name) for name in first.columns}
        num_read = len(texts["source"]) + sum(dropped.values()) - dropped.get("duplicate", 0)
        if filters.drop_duplicates:
            different = _mapped(folder / "kept", np.uint32)
            texts = {name: Selection(text, different) for name, text in texts.items()}
        filters.report(stream.name, num_read, len(texts["source"]), dropped)
        log.info("data: the encoded training text is stored in %s", folder)
        return Pairs(
            texts["source"], texts["target"], stream.name, texts.get("links"), store=folder
        )


def encoded(pairs: Pairs, tokenizer: Tokenizer) -> Corpus:
    """Returns the token ids of stored pairs, encoded on the first call and then stored."""
    assert pairs.store is not None
    key = repr((VERSION, tokenizer.models, tokenizer.lowercase, tokenizer.columns))
    folder = pairs.store / f"pieces-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    build = partial(_write_ids, pairs=pairs, tokenizer=tokenizer)
    build_once(folder, f"token ids of {pairs.name}", build)

    def mapped(name: str, dtype: Any) -> Ragged:
        offsets = _mapped(folder / f"{name}.offsets", np.int64)
        return Ragged(_mapped(folder / f"{name}.ids", dtype), offsets)

    return Corpus(
        source=mapped("source", id_type(tokenizer.source_ids)),
        target=mapped("target", id_type(tokenizer.target_size)),
        links=None if pairs.links is None else mapped("links", np.uint32),
    )


@dataclass(frozen=True)
class Chunk:
    """Rows of all columns, produced by one worker process.

    columns: bytes or ids of the rows, by column name
    dropped: number of dropped pairs by reason
    hashes: 8-byte hash of each pair, if duplicates are dropped
    """

    columns: Mapping[str, Ragged]
    dropped: Mapping[str, int] = field(default_factory=dict)
    hashes: bytes = b""


def _write_text(folder: Path, stream: Stream[Pairs], filters: Filters) -> dict[str, int]:
    """Writes the pairs of a stream that pass the filters.

    Returns the number of dropped pairs by reason.
    """
    dropped: Counter[str] = Counter()
    hashes = []
    chunks = ordered_map(partial(_text_chunk, filters), stream.read())
    for chunk in written_chunks(folder, "text", chunks):
        dropped.update(chunk.dropped)
        hashes.append(chunk.hashes)
    if filters.drop_duplicates:
        pair_hashes = np.frombuffer(b"".join(hashes), np.uint64)
        # Pairs with equal 64-bit hashes count as duplicates.
        first_rows = np.sort(np.unique(pair_hashes, return_index=True)[1]).astype(np.uint32)
        first_rows.tofile(folder / "kept")
        dropped["duplicate"] = len(pair_hashes) - len(first_rows)
    return dropped


def _write_ids(folder: Path, pairs: Pairs, tokenizer: Tokenizer) -> dict[str, int]:
    """Encodes stored pairs and writes their token ids."""
    began = time.monotonic()
    ranges = (slice(start, start + CHUNK) for start in range(0, len(pairs), CHUNK))
    chunks = ordered_map(partial(_ids_chunk, pairs, tokenizer), ranges)
    with Progress("encoding", len(pairs), "pairs") as step:
        for chunk in written_chunks(folder, "ids", chunks):
            step(len(chunk.columns["source"]))
    seconds = time.monotonic() - began
    log.info(
        "data: encoded %s sentence pairs in %.0f s (%s pairs per second)",
        f"{len(pairs):,}",
        seconds,
        f"{len(pairs) / seconds:,.0f}",
    )
    return {}


def written_chunks(folder: Path, kind: str, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Appends each chunk to its columns' files NAME.kind and NAME.offsets, and yields the chunk."""
    ends: dict[str, int] = {}  # total length of the written rows, by column
    for chunk in chunks:
        for name, column in chunk.columns.items():
            # Only the first chunk writes its start offset; later chunks continue from the end.
            offsets = column.offsets[1:] + ends[name] if name in ends else column.offsets
            _append(folder / f"{name}.{kind}", column.ids)
            _append(folder / f"{name}.offsets", offsets)
            ends[name] = ends.get(name, 0) + int(column.offsets[-1])
        yield chunk


def _append(file: Path, numbers: np.ndarray) -> None:
    with open(file, "ab") as opened:
        opened.write(numbers.tobytes())


def _text_chunk(filters: Filters, pairs: Pairs) -> Chunk:
    """Returns the pairs that pass the filters, encoded as bytes."""
    rows, dropped = filters.sift(pairs.source, pairs.target)
    lines = {
        name: [text[i].encode("utf-8", "surrogatepass") + b"\n" for i in rows]
        for name, text in pairs.columns.items()
    }
    columns = {
        name: Ragged(np.frombuffer(b"".join(column), np.uint8), offsets_of([*map(len, column)]))
        for name, column in lines.items()
    }
    if not filters.drop_duplicates:
        return Chunk(columns, dropped)
    hashes = [
        hashlib.blake2b(source + target, digest_size=8).digest()
        for source, target in zip(lines["source"], lines["target"], strict=True)
    ]
    return Chunk(columns, dropped, b"".join(hashes))


def _ids_chunk(pairs: Pairs, tokenizer: Tokenizer, rows: slice) -> Chunk:
    """Returns the token ids of the sentence pairs in a slice."""
    texts: dict[str, Any] = {name: text[rows] for name, text in pairs.columns.items()}
    corpus = encode(Pairs(**texts, name=pairs.name), tokenizer)
    return Chunk({name: getattr(corpus, name) for name in texts})


def chunk_of(pairs: Pairs, indices: np.ndarray) -> Pairs:
    """Returns the sentence pairs with the given indices as lists in memory."""
    chunk = pairs.select(indices.tolist())  # indexing with Python integers is faster
    return replace(chunk, source=list(chunk.source), target=list(chunk.target))


def _mapped(file: Path, dtype: Any) -> np.ndarray:
    """Returns the memory-mapped values of a file as a plain array, which is faster than a
    memmap."""
    if not file.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r"))
