"""Pictures by their names: images and grids of features, read when a batch is made.

    FILE                    an image that Pillow reads
    FILE.npy                features [positions, channels] or [rows, columns, channels]
    FILE.npz#KEY            features in an archive; FILE.safetensors#KEY as well

    FILE.parquet#COLUMN@ROW a cell of a table: an image in bytes, or lists of numbers
    digits:…                a page of handwritten digits (nmt/data/sources/digits.py)

Positions without rows and columns form a square if their number is a square number (196 are
14 x 14), otherwise one row.
"""

import functools
import io
import math
import os
import re
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.data.lines import check_no_pointer, reading
from nmt.data.sources.digits import PREFIX, page
from nmt.foundation.errors import UserError
from nmt.foundation.extras import require
from nmt.foundation.interfaces import Pictures

CACHE_BYTES = 2**29
"""Bytes of pictures that are kept in memory, those read first: an epoch reads all of them once."""
ARCHIVES = (".npz", ".safetensors")
"""Endings of files with several arrays, each with a key."""
FEATURES = (np.ndarray, list)
"""Types of features as they are stored."""
_CELL = re.compile(r"(.+\.parquet)#(.+)@(\d+)", re.DOTALL)
_LUMA = np.array([299, 587, 114])
"""Thousandths of red, green and blue in grey (ITU-R BT.601)."""
Read = Callable[..., np.ndarray]
"""Reads a picture [rows, columns, channels] by its name, `channels` and further settings."""


def read_image(name: str, channels: int, longest: int) -> np.ndarray:
    """An image as bytes [rows, columns, channels]. Raises UserError if it cannot be read.

    name: see above.
    channels: 1 (grey) or 3 (red, green, blue).
    longest: pixels of a side; larger images are scaled down.
    """
    image = _scaled_down(image_of(name), longest)
    if image.shape[2] < channels:
        return np.repeat(image, channels, 2)
    if image.shape[2] > channels:
        return (image @ _LUMA // 1000).astype(np.uint8)[..., None]
    return image


def read_features(name: str, channels: int) -> np.ndarray:
    """A grid of features [rows, columns, channels].

    Raises UserError if it cannot be read, or has another number of channels.
    """
    features = features_of(name)
    if features.shape[2] != channels:
        raise UserError(
            f"{name}: {features.shape[2]:,} channels, but the encoder reads {channels:,}: set "
            f"encoder.channels={features.shape[2]}"
        )
    return features


class Reader:
    """Reads the pictures of a batch, and keeps some of them in memory. It is thread-safe.

    read: function that reads one picture
    channels: channels of a picture
    settings: further arguments of `read`
    """

    def __init__(self, read: Read, channels: int, **settings: int) -> None:
        self.read = read
        self.channels = channels
        self.settings = settings
        self._cache: dict[str, np.ndarray] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def __str__(self) -> str:
        settings = {"channels": self.channels, **self.settings}
        return ", ".join(
            [self.read.__name__, *(f"{key}={value}" for key, value in settings.items())]
        )

    def __call__(self, names: Sequence[str]) -> Pictures:
        """Pictures by their names; "" is no picture. Raises UserError if one cannot be read."""
        pictures = [self._read(name) for name in names]  # each [rows, columns, C]
        sizes = np.array([picture.shape[:2] for picture in pictures], np.int64).reshape(-1, 2)
        rows, columns = sizes.max(0, initial=0)
        values = np.zeros((len(pictures), rows, columns, self.channels), np.float32)
        # values: [B, rows, columns, C], zeros below and to the right of each picture
        for padded, picture in zip(values, pictures, strict=True):
            if picture.dtype == np.uint8:
                picture = picture * np.float32(1 / 255)
            padded[: picture.shape[0], : picture.shape[1]] = picture
        same_size = bool((sizes == sizes[:1]).all())
        return Pictures(torch.from_numpy(values), torch.from_numpy(sizes), even=same_size)

    def _read(self, name: str) -> np.ndarray:
        if not name:
            return np.zeros((0, 0, self.channels), np.uint8)
        if name in self._cache:
            return self._cache[name]
        picture = self.read(name, self.channels, **self.settings)
        with self._lock:
            if self._bytes + picture.nbytes <= CACHE_BYTES and name not in self._cache:
                self._cache[name] = picture
                self._bytes += picture.nbytes
        return picture


@dataclass(frozen=True)
class PictureInfo:
    """Facts about a readable picture.

    stamp: a number that changes with the picture: a checksum, or the size of a file with many
        pictures; 0 for drawn pages.
    channels: channels of features; None: an image.
    """

    stamp: int
    channels: int | None


def check_picture(name: str) -> PictureInfo:
    """Raises UserError unless `name` is an image that can be decoded, or features."""
    if not name:
        raise UserError("an empty cell instead of the name of a picture")
    file = Path(name.partition("#")[0])
    content = _content(name)
    if isinstance(content, FEATURES):
        return PictureInfo(file.stat().st_size, _grid(name, content).shape[-1])
    _image(name, content)
    if name.startswith(PREFIX):
        return PictureInfo(stamp=0, channels=None)
    is_cell = content is not None and not isinstance(content, Path)
    stamp = file.stat().st_size if is_cell else zlib.crc32(file.read_bytes())
    return PictureInfo(stamp, channels=None)


def _content(name: str) -> Any:
    """Stored content of a picture: features, the cell of a table, or the path of an image."""
    cell = _CELL.fullmatch(name)
    if cell:
        values = _column(Path(cell[1]), cell[2])
        row = int(cell[3])
        if row >= len(values):
            raise UserError(f"{cell[1]}: row {row:,} does not exist; it has {len(values):,} rows")
        return values[row].as_py()
    file, key = name.partition("#")[::2]
    ending = Path(file).suffix.lower()
    if ending not in (".npy", *ARCHIVES):
        return Path(name)
    with reading(name, " as features"):
        if ending == ".npy":
            return np.load(file, mmap_mode="r", allow_pickle=False)
        arrays = _archive(Path(file), os.getpid())
        if key not in arrays:
            problem = f"no {key} in it" if key else f"name one of its arrays, {file}#KEY"
            raise UserError(f"{name}: {problem}; it has {', '.join(sorted(arrays)[:3])} …")
        return arrays[key]()


@functools.lru_cache(maxsize=64)
def _archive(file: Path, process: int) -> Mapping[str, Callable[[], np.ndarray]]:
    """Functions that read the arrays of an archive, by key; pickles are refused.

    Each process opens the file itself: forked processes would share its position.
    """
    if file.suffix.lower() == ".npz":
        arrays = np.load(file, allow_pickle=False)
        return {key: functools.partial(arrays.__getitem__, key) for key in arrays.files}
    from safetensors import safe_open

    opened = safe_open(file, "numpy")
    return {key: functools.partial(opened.get_tensor, key) for key in opened.keys()}  # noqa: SIM118


@functools.lru_cache(maxsize=4)
def _column(file: Path, column: str) -> Any:
    """A column of a table, kept in memory as it is in the file.

    Raises UserError if it cannot be read.
    """
    import pyarrow.parquet

    with reading(file, f" as parquet with a column {column!r}"):
        return pyarrow.parquet.read_table(file, columns=[column], memory_map=True).column(column)


# Images


def image_of(name: str) -> np.ndarray:
    """An image as bytes [rows, columns, 1 or 3]. Raises UserError if it cannot be read."""
    return _image(name, _content(name))


def _image(name: str, content: Any) -> np.ndarray:
    if name.startswith(PREFIX):
        return page(name)[..., None]
    if isinstance(content, FEATURES):
        raise UserError(f"{name}: features, not an image; encoder=grid reads them")
    if isinstance(content, dict):
        content = content.get("bytes") or content.get("path")
    if isinstance(content, str):
        content = Path(name).parent / content
    return _decoded(name, content or name)


def thumbnail(name: str, longest: int) -> np.ndarray | None:
    """A picture as bytes [rows, columns, 1 or 3] of at most `longest` a side; None for features."""
    try:
        return _scaled_down(image_of(name), longest)
    except UserError:  # features, or no picture; unreadable pictures were reported before
        return None


def _decoded(name: str, file: str | Path | bytes) -> np.ndarray:
    require("PIL")
    from PIL import Image, UnidentifiedImageError

    with reading(name, " as an image"):
        try:
            with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as image:
                return _pixels(image).reshape(image.height, image.width, -1)
        except UnidentifiedImageError:
            if not isinstance(file, bytes):
                check_no_pointer(Path(file))
            raise UserError(f"{name}: not an image that Pillow reads") from None


def _pixels(image: Any) -> np.ndarray:
    """Bytes of an image of Pillow, [rows, columns] if it is grey, else [rows, columns, 3]."""
    if image.mode == "F" or image.mode.startswith("I"):
        values = np.asarray(image).astype(np.float64)
        scale = 1 / 256  # 16 bits a pixel
        if image.mode == "F" and values.max() <= 255:
            scale = 255 if values.max() <= 1 else 1
        return (values * scale).clip(0, 255).astype(np.uint8)
    if image.mode == "P":
        image = image.convert("RGBA")  # transparent colours are colours
    return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))


def _scaled_down(image: np.ndarray, longest: int) -> np.ndarray:
    """An image [rows, columns, channels] with sides of at most `longest` pixels."""
    side = max(image.shape[:2])
    if side <= longest:
        return image
    from PIL import Image

    rows, columns = (max(1, round(pixels * longest / side)) for pixels in image.shape[:2])
    picture = Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image)
    small = picture.resize((columns, rows), Image.Resampling.LANCZOS)
    return np.asarray(small).reshape(rows, columns, -1)


# Features


def features_of(name: str) -> np.ndarray:
    """Features [rows, columns, channels]. Raises UserError if they are missing or not numbers."""
    content = _content(name)
    if not isinstance(content, FEATURES):
        raise UserError(
            f"{name}: contains no features; they are in .npy, .npz#KEY, .safetensors#KEY or a "
            "column of .parquet"
        )
    return _grid(name, content)


def _grid(name: str, content: Any) -> np.ndarray:
    with reading(name, " as features"):
        features = np.asarray(content, np.float32)
    if features.ndim not in (2, 3) or 0 in features.shape:
        raise UserError(
            f"{name}: shape {list(features.shape)}, not [positions, channels] or "
            "[rows, columns, channels]"
        )
    if not np.isfinite(features).all():
        raise UserError(f"{name}: values that are not numbers, or too large for 32 bits")
    if features.ndim == 2:
        positions, channels = features.shape
        side = math.isqrt(positions)
        rows = side if side * side == positions else 1
        features = features.reshape(rows, -1, channels)
    return features
