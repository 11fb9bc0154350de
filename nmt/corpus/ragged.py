"""Encoded text, flat: all ids in one array plus offsets, so that a million sentences are three objects, not a million.

Large corpora are written to a cache, named by a hash of their content, and memory-mapped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress

CHUNK = 4096
CACHE_ABOVE = 500_000
"""With more pairs than this, the encoded text is kept on disk and memory-mapped."""

log = logging.getLogger(__name__)
Encoder = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True)
class Ragged:
    """Sequences of ids: sequence i is ids[offsets[i]:offsets[i+1]]."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int | np.integer) -> np.ndarray:
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Corpus:
    """Encoded sentence pairs, without BOS and EOS. `links`: for each pair, s₁ t₁ s₂ t₂ …, positions that are aligned;
    `pictures`: names."""

    source: Ragged
    target: Ragged
    links: Ragged | None = None
    pictures: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.source)


def encode_lines(lines: Sequence[str], encoder: Encoder, vocabulary: int) -> Ragged:
    """Encodes chunk by chunk into flat arrays of the smallest integer type that holds the vocabulary."""
    dtype = _id_type(vocabulary)
    ids, lengths = [np.empty(0, dtype)], [np.zeros(1, np.int64)]
    for part, part_lengths in _chunks(lines, encoder, dtype):
        ids.append(part)
        lengths.append(part_lengths)
    return Ragged(np.concatenate(ids), np.cumsum(np.concatenate(lengths)))


def flat(rows: Iterable[Sequence[int]]) -> Ragged:
    """Sequences as one array."""
    listed = list(rows)
    lengths = np.fromiter(map(len, listed), np.int64, len(listed))
    ids = np.fromiter((i for row in listed for i in row), np.uint32, int(lengths.sum()))
    return Ragged(ids, np.cumsum(np.concatenate([np.zeros(1, np.int64), lengths])))


def encode_cached(lines: Sequence[str], encoder: Encoder, vocabulary: int, key: bytes, folder: Path) -> Ragged:
    """As `encode_lines`, but on disk: written once under a hash of `key` (the tokenizer) and the text, then
    memory-mapped."""
    digest = hashlib.sha256(key)
    for line in lines:
        digest.update(line.encode() + b"\n")
    base = folder / digest.hexdigest()[:32]
    try:
        found = _cached(base)
        if found is None:
            _write_cache(base, lines, encoder, vocabulary)
            found = _cached(base)
    except OSError as error:
        log.warning("encoded text: %s cannot be written or read (%s): kept in memory instead", folder, error.strerror)
        return encode_lines(lines, encoder, vocabulary)
    if found is None:
        raise UserError(f"{base}.*: changes while it is read; is the disk damaged? Set NMT_CACHE to another folder")
    log.info("encoded text: mapped from %s", base)
    return found


def _write_cache(base: Path, lines: Sequence[str], encoder: Encoder, vocabulary: int) -> None:
    base.parent.mkdir(parents=True, exist_ok=True)
    dtype, lengths = _id_type(vocabulary), [np.zeros(1, np.int64)]
    with tempfile.TemporaryFile(dir=base.parent) as raw:
        for part, part_lengths in _chunks(lines, encoder, dtype):
            raw.write(part.tobytes())
            lengths.append(part_lengths)
        offsets = np.cumsum(np.concatenate(lengths))
        raw.flush()
        ids = np.memmap(raw, dtype, "r", shape=(int(offsets[-1]),)) if offsets[-1] else np.empty(0, dtype)
        for ending, array in (("ids", ids), ("offsets", offsets)):
            _write_atomically(base.with_suffix(f".{ending}.npy"), partial(_save, array))
    sums = [_checksum(ids), _checksum(offsets)]
    _write_atomically(base.with_suffix(".json"), partial(_save_sums, sums))


def _cached(base: Path) -> Ragged | None:
    """What was written before, mapped; None if it is not there, or not as it was written (a power cut leaves zeros)."""
    try:
        sums = json.loads(base.with_suffix(".json").read_text())
        ids, offsets = (np.load(base.with_suffix(f".{ending}.npy"), mmap_mode="r") for ending in ("ids", "offsets"))
        if sums == [_checksum(ids), _checksum(offsets)]:
            return Ragged(ids, offsets)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, EOFError):
        pass
    log.warning("encoded text: %s.* is damaged; it is made again", base)
    return None


def _checksum(array: np.ndarray) -> int:
    value = 0
    for start in range(0, len(array), 2**22):
        value = zlib.crc32(np.ascontiguousarray(array[start : start + 2**22]).data, value)
    return value


def cache_folder() -> Path:
    """Where encoded corpora are kept: $NMT_CACHE, else the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NMT_CACHE") or Path(base) / "nmt")


def _id_type(vocabulary: int) -> type[np.unsignedinteger]:
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def _chunks(lines: Sequence[str], encoder: Encoder, dtype: type) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with Progress("encoding", len(lines), "lines") as step:
        for start in range(0, len(lines), CHUNK):
            rows = encoder(list(lines[start : start + CHUNK]))
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            yield np.fromiter((i for row in rows for i in row), dtype, int(lengths.sum())), lengths
            step(len(rows))


def _save_sums(sums: list[int], file: BinaryIO) -> None:
    file.write(json.dumps(sums).encode())


def _save(array: np.ndarray, file: BinaryIO) -> None:
    np.save(file, array)


def _write_atomically(name: Path, write: Callable[[BinaryIO], None]) -> None:
    temporary = name.with_name(f".{name.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            write(file)
        os.replace(temporary, name)
    finally:
        temporary.unlink(missing_ok=True)
