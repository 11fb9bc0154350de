"""Pictures by their names: images and grids of features, read when a batch is made.

    FILE                    an image that Pillow reads, or .npy: features [positions, channels] or [rows, columns, channels]
    FILE.npz#KEY            an array of an archive; FILE.safetensors#KEY as well
    FILE.parquet#COLUMN@ROW a cell of a table: an image in bytes, or lists of numbers
    digits:…                a page of handwritten digits (digits.py)

Positions without rows and columns that are a square number are a square (196 are 14 x 14), otherwise one row.
"""

from __future__ import annotations

import functools
import io
import math
import re
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.data.sources.digits import PREFIX, page
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.interfaces import Pictures

KEPT = 2**29
"""Bytes of pictures that are kept in memory, those that were read first: an epoch reads all of them once."""
ARRAYS = (".npy", ".npz", ".safetensors")
_CELL = re.compile(r"(.+\.parquet)#(.+)@(\d+)", re.DOTALL)
_WEIGHTS = np.array([299, 587, 114])
"""Of red, green and blue in grey, in thousandths (ITU-R BT.601)."""


class Images:
    """Reads images: `channels` 1 (grey) or 3 (red, green, blue), values from 0 to 1. Those with a side longer than `longest`
    pixels are scaled down to it."""

    def __init__(self, channels: int, longest: int) -> None:
        self.channels, self.longest = channels, longest

    def __call__(self, name: str) -> np.ndarray:
        """Values as bytes [rows, columns, channels]. Raises UserError if there is no such image."""
        image = np.asarray(_within(image_of(name), self.longest))
        if image.shape[2] < self.channels:
            return np.repeat(image, self.channels, 2)
        if image.shape[2] > self.channels:
            return (image @ _WEIGHTS // 1000).astype(np.uint8)[..., None]
        return image


class Features:
    """Reads grids of features with so many `channels`."""

    def __init__(self, channels: int) -> None:
        self.channels = channels

    def __call__(self, name: str) -> np.ndarray:
        """[rows, columns, channels]. Raises UserError if there are no such features."""
        found = features_of(name)
        if found.shape[2] != self.channels:
            raise UserError(
                f"{name}: {found.shape[2]:,} channels, but the encoder reads {self.channels:,}: set "
                f"encoder.channels={found.shape[2]}"
            )
        return found


Read = Callable[[str], np.ndarray]


class Reader:
    """Pictures of a batch by their names, `read` one after another; "" is no picture. Several threads may use it."""

    def __init__(self, read: Read, channels: int) -> None:
        self.read, self.channels = read, channels
        self._kept: dict[str, np.ndarray] = {}
        self._bytes, self._lock = 0, threading.Lock()

    def __call__(self, names: Sequence[str]) -> Pictures:
        """Raises UserError if one of them cannot be read."""
        each = [self._one(name) for name in names]
        sizes = np.array([one.shape[:2] for one in each], np.int64).reshape(-1, 2)
        rows, columns = sizes.max(0, initial=0)
        values = np.zeros((len(each), rows, columns, self.channels), np.float32)
        for place, one in zip(values, each, strict=True):
            place[: one.shape[0], : one.shape[1]] = (
                one * np.float32(1 / 255) if one.dtype == np.uint8 else one
            )
        even = bool((sizes == sizes[:1]).all())
        return Pictures(torch.from_numpy(values), torch.from_numpy(sizes), even)

    def _one(self, name: str) -> np.ndarray:
        if not name:
            return np.zeros((0, 0, self.channels), np.uint8)
        kept = self._kept.get(name)
        if kept is not None:
            return kept
        found = self.read(name)
        with self._lock:
            if self._bytes + found.nbytes <= KEPT and name not in self._kept:
                self._kept[name] = found
                self._bytes += found.nbytes
        return found


def is_array(name: str) -> bool:
    """Whether a name is that of features, not of an image, as far as the name says."""
    return Path(name.partition("#")[0]).suffix.lower() in ARRAYS


def image_of(name: str) -> np.ndarray:
    """An image as bytes [rows, columns, 1 or 3]. Raises UserError if there is no such image."""
    if name.startswith(PREFIX):
        return page(name)[..., None]
    if is_array(name):
        raise UserError(f"{name}: features, not an image; encoder=grid reads them")
    cell = _CELL.fullmatch(name)
    held = None if cell is None else _cell(Path(cell[1]), cell[2], int(cell[3]))
    if isinstance(held, dict):
        held = held.get("bytes") or held.get("path")
    if isinstance(held, list):
        raise UserError(f"{name}: features, not an image; encoder=grid reads them")
    if isinstance(held, str):
        held = str(Path(name).parent / held)
    return _opened(name, held or name)


@dataclass(frozen=True)
class Checked:
    """A picture that can be read: a number that changes with it (with the size of its file, if that holds many), and
    the channels of features (None: an image)."""

    stamp: int
    channels: int | None


def check_picture(name: str) -> Checked:
    """Raises UserError unless there is such a picture: an image that can be decoded, or features by that name."""
    cell, file = _CELL.fullmatch(name), Path(name.partition("#")[0])
    if not name:
        raise UserError("an empty cell instead of the name of a picture")
    if is_array(name):
        shape = features_of(name).shape if file.suffix == ".npy" else _shape(name)
        return Checked(file.stat().st_size, shape[-1])
    if cell is not None and isinstance(_cell(Path(cell[1]), cell[2], int(cell[3])), list):
        return Checked(file.stat().st_size, features_of(name).shape[2])
    image_of(name)
    if name.startswith(PREFIX):
        return Checked(0, None)
    return Checked(
        file.stat().st_size if cell is not None else zlib.crc32(Path(name).read_bytes()), None
    )


def _shape(name: str) -> tuple[int, ...]:
    """The shape of an array in an archive, which is not read. Raises UserError if it cannot be that of features."""
    file, _, key = name.partition("#")
    try:
        shapes = _shapes(Path(file))
    except FileNotFoundError:
        raise UserError(f"{file}: no such file") from None
    except Exception as error:  # what readers say of damaged files, in many ways
        raise UserError(f"{file}: cannot be read ({error})") from error
    if key not in shapes:
        raise UserError(f"{name}: {_no_key(file, key, shapes)}")
    if len(shapes[key]) not in (2, 3) or 0 in shapes[key]:
        raise UserError(f"{name}: {_no_grid(shapes[key])}")
    return shapes[key]


def _no_key(file: str, key: str, keys: Iterable[str]) -> str:
    some = ", ".join(sorted(keys)[:3])
    return (
        f"no {key} in it; it has {some} …"
        if key
        else f"name one of its arrays, {file}#KEY; it has {some} …"
    )


def _no_grid(shape: Sequence[int]) -> str:
    return f"shape {list(shape)}, not [positions, channels] or [rows, columns, channels]"


@functools.lru_cache(maxsize=64)
def _shapes(file: Path) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the arrays of an archive by their keys."""
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(file, "numpy") as opened:
            return {key: tuple(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118
    found = {}
    with zipfile.ZipFile(file) as archive:
        for entry in archive.namelist():
            with archive.open(entry) as array:
                version = np.lib.format.read_magic(array)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                found[entry.removesuffix(".npy")] = read(array)[0]
    return found


def shown(name: str, longest: int) -> np.ndarray | None:
    """A picture as people see it, bytes [rows, columns, 1 or 3] of at most `longest` a side; None for features."""
    if not name or is_array(name):
        return None
    try:
        return _within(image_of(name), longest)
    except UserError:  # a cell with features; what cannot be read was told before
        return None


def _opened(name: str, where: str | bytes) -> np.ndarray:
    if not installed("PIL"):
        raise UserError(advice("PIL"))
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(where) if isinstance(where, bytes) else where) as opened:
            opened.load()
            grey = opened.mode in ("1", "L", "I", "I;16", "F")
            image = (
                opened.point(lambda value: value / 256) if opened.mode in ("I", "I;16") else opened
            )  # 16 bits a pixel
            if opened.mode == "P":
                image = opened.convert("RGBA")  # transparent colours are colours
            return np.asarray(image.convert("L" if grey else "RGB")).reshape(
                image.height, image.width, -1
            )
    except FileNotFoundError:
        raise UserError(f"{name}: no such picture") from None
    except UnidentifiedImageError:
        raise UserError(f"{name}: not an image that Pillow reads") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"{name}: cannot be read as an image ({error})") from error


def _within(image: np.ndarray, longest: int) -> np.ndarray:
    """An image, scaled down if a side is longer."""
    most = max(image.shape[:2])
    if most <= longest:
        return image
    from PIL import Image

    size = [max(1, round(side * longest / most)) for side in image.shape[1::-1]]
    small = Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image).resize(
        size, Image.Resampling.LANCZOS
    )
    return np.asarray(small).reshape(size[1], size[0], -1)


def features_of(name: str) -> np.ndarray:
    """Features [rows, columns, channels]. Raises UserError if there are none, or if they are not numbers."""
    cell, (file, _, key) = _CELL.fullmatch(name), name.partition("#")
    try:
        if cell is not None:
            found = np.asarray(_cell(Path(cell[1]), cell[2], int(cell[3])), np.float32)
        elif not is_array(name):
            raise UserError(
                f"{name}: no features, which are in .npy, .npz#KEY, .safetensors#KEY or a column of .parquet"
            )
        else:
            found = np.asarray(_archive(Path(file))(key), np.float32)
    except FileNotFoundError:
        raise UserError(f"{file}: no such file") from None
    except KeyError:
        raise UserError(f"{name}: {_no_key(file, key, _shapes(Path(file)))}") from None
    except UserError:
        raise
    except Exception as error:  # what readers say of damaged files, in many ways
        raise UserError(f"{name}: cannot be read as features ({error})") from error
    if found.ndim not in (2, 3) or not found.size:
        raise UserError(f"{name}: {_no_grid(found.shape)}")
    if not np.isfinite(found).all():
        raise UserError(f"{name}: values that are not numbers, or too large for 32 bits")
    if found.ndim == 2:
        side = math.isqrt(len(found))
        found = found.reshape(side if side * side == len(found) else 1, -1, found.shape[1])
    return found


@functools.lru_cache(maxsize=64)
def _archive(file: Path) -> Callable[[str], np.ndarray]:
    """The arrays of a file by their keys; no pickles."""
    if file.suffix == ".npy":
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        return lambda key: array
    if file.suffix == ".npz":
        return np.load(file, allow_pickle=False).__getitem__
    from safetensors import SafetensorError, safe_open

    opened = safe_open(file, "numpy")

    def read(key: str) -> np.ndarray:
        try:
            return opened.get_tensor(key)
        except SafetensorError as error:
            raise KeyError(key) from error

    return read


def _cell(file: Path, column: str, row: int) -> Any:
    values = _column(file, column)
    if row >= len(values):
        raise UserError(f"{file}: row {row:,} is asked for, and it has {len(values):,}")
    return values[row].as_py()


@functools.lru_cache(maxsize=4)
def _column(file: Path, column: str) -> Any:
    """A column of a table, kept in memory as it is in the file. Raises UserError if it cannot be read."""
    if not installed("datasets"):
        raise UserError(advice("datasets"))
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(file, columns=[column], memory_map=True).column(column)
    except FileNotFoundError:
        raise UserError(f"{file}: no such file") from None
    except (pyarrow.ArrowException, KeyError) as error:
        raise UserError(
            f"{file}: cannot be read as parquet with a column {column!r} ({error})"
        ) from error
