"""On-disk storage for training data of any size: read, filtered and encoded once, in constant
memory.

A store is a folder in the cache, named by a hash of the content and the filters. All training
processes share its files by memory mapping:

    source.text, source.offsets, target…, links…    lines, and the position of each in the file
    kept                                            indices of the pairs left after deduplication
    digest                                          digest of the pairs before filtering
    pieces-…/source.ids, source.offsets, target…    token ids, one folder per tokenizer
"""

import hashlib
import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nmt.data import Pairs
from nmt.data.filters import DIGEST, Filters, digest_of_columns
from nmt.data.lazy_text import Selection, Text, View
from nmt.data.lines import CHUNK
from nmt.data.ragged import Corpus, Ragged, encode, id_type, offsets_of
from nmt.data.streams import Stream, in_memory
from nmt.data.worker_processes import ordered_map
from nmt.foundation.errors import UserError
from nmt.foundation.processes import available_cores
from nmt.foundation.progress import Progress
from nmt.storage.cache import build_once, cache_folder
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)
Result = TypeVar("Result")
VERSION = 2
"""Version of the on-disk format of stores; part of the cache key."""
AUTO = 200_000_000
"""Size of training files in bytes above which store=auto uses the disk."""


class StoredText(View):
    """Lines of text in a UTF-8 file, with the byte offset of each line in a second file.

    folder: folder of the files NAME.text and NAME.offsets
    name: base name NAME of both files
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.text", os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._offsets = _mapped(folder / f"{name}.offsets", np.int64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

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


def stored(stream: Stream[Pairs], training: bool, where: str, filters: Filters) -> Pairs:
    """Reads sentence pairs into memory or a store on disk.

    With `where` and `filters` bound by functools.partial, the function has the type `Keep`, which
    data sources expect.

    stream: sentence pairs
    training: whether the pairs are training pairs; other pairs are not filtered
    where: auto, memory or disk; auto uses the disk for training files above AUTO bytes
    filters: filters of the training pairs

    Raises UserError if there are no pairs, or if the filters drop all pairs.
    """
    if where == "memory" or (where == "auto" and stream.size <= AUTO):
        return in_memory(stream)
    first = next(stream.read(), None)
    if first is None:
        raise UserError(f"{stream.name}: {stream.empty}")
    applied = filters if training else None
    key = f"{VERSION} {stream.digest()} {applied.key if applied else 'unfiltered'}"
    folder = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:32]
    dropped = build_once(
        folder,
        f"store of {stream.name}",
        partial(_write_text, stream=stream, filters=applied),
    )
    texts: dict[str, Text] = {name: StoredText(folder, name) for name in first.columns}
    num_read = len(texts["source"]) + sum(dropped.values()) - dropped.get("duplicate", 0)
    if applied and applied.drop_duplicates:
        different = _mapped(folder / "kept", np.uint32)
        texts = {name: Selection(text, different) for name, text in texts.items()}
    filters.report(stream.name, num_read, len(texts["source"]), dropped)
    log.info("data: the encoded training text is stored in %s", folder)
    return Pairs(texts["source"], texts["target"], stream.name, texts.get("links"), store=folder)


def encoded(pairs: Pairs, tokenizer: Tokenizer) -> Corpus:
    """Returns the token ids of stored pairs, which are encoded on the first call and then cached."""
    assert pairs.store is not None
    key = repr((VERSION, tokenizer.models, tokenizer.lowercase, tokenizer.columns))
    folder = pairs.store / f"pieces-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    build_once(
        folder,
        f"token ids of {pairs.name}",
        partial(_write_ids, pairs=pairs, tokenizer=tokenizer),
    )

    def mapped(name: str, dtype: Any) -> Ragged:
        offsets = _mapped(folder / f"{name}.offsets", np.int64)
        return Ragged(_mapped(folder / f"{name}.ids", dtype), offsets)

    return Corpus(
        source=mapped("source", id_type(tokenizer.source_ids)),
        target=mapped("target", id_type(tokenizer.target_size)),
        links=None if pairs.links is None else mapped("links", np.uint32),
    )


def _write_text(folder: Path, stream: Stream[Pairs], filters: Filters | None) -> dict[str, int]:
    """Writes the pairs of a stream that pass the filters, or all pairs if `filters` is None.

    Returns the number of dropped pairs by reason.
    """
    names = [*next(stream.read()).columns]
    columns_before = ((pairs.columns[name] for pairs in stream.read()) for name in names)
    (folder / DIGEST).write_text(digest_of_columns(columns_before), encoding="utf-8")
    dropped: Counter[str] = Counter()
    hashes = []
    chunks = _computed(partial(_text_chunk, filters), stream.read())
    for columns, dropped_pairs, pair_hashes in chunks:
        append_columns(folder, "text", columns)
        dropped.update(dropped_pairs)
        hashes.append(pair_hashes)
    if filters and filters.drop_duplicates:
        all_hashes = np.frombuffer(b"".join(hashes), np.uint64)
        # Pairs with equal 64-bit hashes count as duplicates.
        first_rows = np.sort(np.unique(all_hashes, return_index=True)[1]).astype(np.uint32)
        first_rows.tofile(folder / "kept")
        dropped["duplicate"] = len(all_hashes) - len(first_rows)
    return dropped


def _write_ids(folder: Path, pairs: Pairs, tokenizer: Tokenizer) -> None:
    """Encodes stored pairs and writes their token ids."""
    ranges = (slice(start, start + CHUNK) for start in range(0, len(pairs), CHUNK))
    with Progress("encoding", len(pairs), "pairs") as step:
        for columns in _computed(partial(_ids_chunk, pairs, tokenizer), ranges):
            append_columns(folder, "ids", columns)
            step(len(columns["source"]))


def _computed(function: Callable[[Any], Result], items: Iterable[Any]) -> Iterator[Result]:
    """Yields the results of a function for all items, computed on all cores.

    Raises UserError if a worker process is killed.
    """
    try:
        yield from ordered_map(function, items, available_cores())
    except RuntimeError as error:
        # DataLoader has no exception type for a killed worker process.
        if "DataLoader worker" not in str(error):
            raise
        raise UserError(
            "data preparation: a worker process was killed, possibly for lack of memory; free "
            "memory or use fewer cores"
        ) from error


def append_columns(folder: Path, kind: str, columns: Mapping[str, Ragged]) -> None:
    """Appends rows to two files per column: NAME.text or NAME.ids, and NAME.offsets.

    folder: folder of the files
    kind: extension of the first file, `text` or `ids`
    columns: rows to append, by the name of the column
    """
    for name, column in columns.items():
        with (
            open(folder / f"{name}.{kind}", "ab") as ids,
            open(folder / f"{name}.offsets", "ab") as offsets,
        ):
            # Only the first rows write their start offset; later rows continue from the end.
            first = 1 if offsets.tell() else 0
            offsets.write((column.offsets[first:] + ids.tell() // column.ids.itemsize).tobytes())
            ids.write(column.ids.tobytes())


def _text_chunk(
    filters: Filters | None, pairs: Pairs
) -> tuple[dict[str, Ragged], Mapping[str, int], bytes]:
    """Filters a chunk of pairs, unless `filters` is None.

    Returns the columns of the remaining pairs as UTF-8 bytes, the number of dropped pairs by
    reason, and the concatenated 8-byte hashes of the remaining pairs. The hashes are empty unless
    duplicates are dropped.
    """
    dropped: Mapping[str, int] = {}
    rows: Iterable[int] = range(len(pairs.source))
    if filters:
        rows, dropped = filters.sift(pairs.source, pairs.target)
    lines = {
        name: [text[i].encode("utf-8", "surrogatepass") + b"\n" for i in rows]
        for name, text in pairs.columns.items()
    }
    columns = {
        name: Ragged(np.frombuffer(b"".join(column), np.uint8), offsets_of([*map(len, column)]))
        for name, column in lines.items()
    }
    if filters is None or not filters.drop_duplicates:
        return columns, dropped, b""
    hashes = [
        hashlib.blake2b(source + target, digest_size=8).digest()
        for source, target in zip(lines["source"], lines["target"], strict=True)
    ]
    return columns, dropped, b"".join(hashes)


def _ids_chunk(pairs: Pairs, tokenizer: Tokenizer, rows: slice) -> dict[str, Ragged]:
    """Returns the token ids of the sentence pairs in a slice."""
    texts: dict[str, Any] = {name: text[rows] for name, text in pairs.columns.items()}
    corpus = encode(Pairs(**texts, name=pairs.name), tokenizer)
    return {name: getattr(corpus, name) for name in texts}


def _mapped(file: Path, dtype: Any) -> np.ndarray:
    """Returns the memory-mapped values of a file as a plain array, which is faster than a
    memmap."""
    if not file.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r"))
