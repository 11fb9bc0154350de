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
import re
import threading
import zipfile
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
_CELL = re.compile(r"(.+\.parquet)#(.+)@(\d+)", re.DOTALL)
_LUMA = np.array([299, 587, 114])
"""Thousandths of red, green and blue in grey (ITU-R BT.601)."""
Read = Callable[..., np.ndarray]
"""Reads a picture by its name, `channels` and further settings, as an array [rows, columns, channels]."""


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
    if _is_array(name) or isinstance(_cell(name), list):
        # The shape of an array in an archive is in its header; the check reads no more than that.
        is_archive = file.suffix.lower() in ARCHIVES
        shape = _shape(name) if is_archive else features_of(name).shape
        return PictureInfo(file.stat().st_size, shape[-1])
    image_of(name)
    if name.startswith(PREFIX):
        return PictureInfo(stamp=0, channels=None)
    stamp = file.stat().st_size if _CELL.fullmatch(name) else zlib.crc32(file.read_bytes())
    return PictureInfo(stamp, channels=None)


# Images


def image_of(name: str) -> np.ndarray:
    """An image as bytes [rows, columns, 1 or 3]. Raises UserError if it cannot be read."""
    if name.startswith(PREFIX):
        return page(name)[..., None]
    cell = _cell(name)
    if _is_array(name) or isinstance(cell, list):
        raise UserError(f"{name}: features, not an image; encoder=grid reads them")
    if isinstance(cell, dict):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str):
        cell = Path(name).parent / cell
    return _decoded(name, cell or name)


def thumbnail(name: str, longest: int) -> np.ndarray | None:
    """A picture as bytes [rows, columns, 1 or 3] of at most `longest` a side; None for features."""
    if not name or _is_array(name):
        return None
    try:
        return _scaled_down(image_of(name), longest)
    except UserError:  # a cell with features; unreadable pictures were reported before
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
    with reading(name, " as features"):
        features = np.asarray(_array(name), np.float32)
    _check_grid(name, features.shape)
    if not np.isfinite(features).all():
        raise UserError(f"{name}: values that are not numbers, or too large for 32 bits")
    if features.ndim == 2:
        positions, channels = features.shape
        side = math.isqrt(positions)
        rows = side if side * side == positions else 1
        features = features.reshape(rows, -1, channels)
    return features


def _array(name: str) -> Any:
    """Stored values of features, in any type."""
    cell = _cell(name)
    if cell is not None:
        return cell
    file, _, key = name.partition("#")
    if not _is_array(name):
        raise UserError(
            f"{name}: no features, which are in .npy, .npz#KEY, .safetensors#KEY or a column of "
            ".parquet"
        )
    if Path(file).suffix.lower() == ".npy":
        return np.load(file, mmap_mode="r", allow_pickle=False)
    _shape(name)  # raises an error for a missing key
    return _archive(Path(file))(key)


def _is_array(name: str) -> bool:
    """Whether a name is that of features in a file of arrays."""
    return Path(name.partition("#")[0]).suffix.lower() in (".npy", *ARCHIVES)


def _shape(name: str) -> tuple[int, ...]:
    """Shape of an array in an archive, from its header.

    Raises UserError if the array is missing or not a grid.
    """
    file, _, key = name.partition("#")
    with reading(file):
        shapes = _shapes(Path(file))
    if key not in shapes:
        keys = ", ".join(sorted(shapes)[:3])
        problem = f"no {key} in it" if key else f"name one of its arrays, {file}#KEY"
        raise UserError(f"{name}: {problem}; it has {keys} …")
    _check_grid(name, shapes[key])
    return shapes[key]


def _check_grid(name: str, shape: Sequence[int]) -> None:
    if len(shape) not in (2, 3) or 0 in shape:
        raise UserError(
            f"{name}: shape {list(shape)}, not [positions, channels] or [rows, columns, channels]"
        )


@functools.lru_cache(maxsize=64)
def _shapes(file: Path) -> Mapping[str, tuple[int, ...]]:
    """Shapes of the arrays of an archive by key, from their headers."""
    if file.suffix.lower() == ".safetensors":
        from safetensors import safe_open

        with safe_open(file, "numpy") as opened:
            return {key: tuple(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118
    shapes = {}
    with zipfile.ZipFile(file) as archive:
        for entry in archive.namelist():
            with archive.open(entry) as array:
                read_header = np.lib.format.read_array_header_1_0
                if np.lib.format.read_magic(array) != (1, 0):
                    read_header = np.lib.format.read_array_header_2_0
                shapes[entry.removesuffix(".npy")] = read_header(array)[0]
    return shapes


@functools.lru_cache(maxsize=64)
def _archive(file: Path) -> Callable[[str], np.ndarray]:
    """A function that reads the array with a key; pickles are refused.

    Each process opens the file itself: forked processes would share its position.
    """
    if file.suffix.lower() == ".npz":
        return np.load(file, allow_pickle=False).__getitem__
    from safetensors import safe_open

    return safe_open(file, "numpy").get_tensor


# Cells of tables


def _cell(name: str) -> Any:
    """The cell of a table with this name; None for other names."""
    match = _CELL.fullmatch(name)
    if match is None:
        return None
    file, column, row = Path(match[1]), match[2], int(match[3])
    values = _column(file, column)
    if row >= len(values):
        raise UserError(f"{file}: row {row:,} does not exist; it has {len(values):,} rows")
    return values[row].as_py()


@functools.lru_cache(maxsize=4)
def _column(file: Path, column: str) -> Any:
    """A column of a table, kept in memory as it is in the file.

    Raises UserError if it cannot be read.
    """
    import pyarrow.parquet

    with reading(file, f" as parquet with a column {column!r}"):
        return pyarrow.parquet.read_table(file, columns=[column], memory_map=True).column(column)
