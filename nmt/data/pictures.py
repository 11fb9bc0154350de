"""Reads images and image features by name.

    FILE                    image in a format that Pillow reads
    FILE.npy                features [positions, channels] or [rows, columns, channels]
    FILE.npz#KEY            features in an archive; also FILE.safetensors#KEY

    FILE.parquet#COLUMN@ROW table cell with the bytes of an image, or nested lists of features
    digits:…                generated image of handwritten digits (nmt/data/digit_images.py)

Features without rows and columns form a square if their number of positions is a square number,
such as 14 x 14 for 196. Otherwise, the features form one row.
"""

import functools
import io
import math
import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.digit_images import PREFIX, page
from nmt.data.lines import check_no_pointer, reading
from nmt.foundation.errors import UserError
from nmt.foundation.extras import require

FEATURES = (np.ndarray, list)
"""Python types of image features after reading: arrays, or nested lists from Parquet tables."""
_CELL = re.compile(r"(.+\.parquet)#(.+)@(\d+)", re.DOTALL)
_ARRAY = re.compile(r"(.+\.(?:npz|safetensors))(?:#(.*))?", re.DOTALL | re.IGNORECASE)
_LUMA = np.array([299, 587, 114])
"""Weights of red, green and blue in a grey value, in thousandths (ITU-R BT.601)."""


def read_image(name: str, channels: int, longest: int) -> np.ndarray:
    """Reads an image as a uint8 array [rows, columns, channels].

    name: image name, such as a file path
    channels: 1 for grey, 3 for RGB
    longest: maximum side length in pixels; larger images are scaled down

    Raises UserError if the image cannot be read.
    """
    image = _scaled_down(image_of(name), longest)
    if image.shape[2] < channels:
        return np.repeat(image, channels, 2)
    if image.shape[2] > channels:
        return (image @ _LUMA // 1000).astype(np.uint8)[..., None]
    return image


def read_features(name: str, channels: int) -> np.ndarray:
    """Reads a grid of image features [rows, columns, channels].

    name: name of the features, such as FILE.npy
    channels: expected number of channels

    Raises UserError if the features cannot be read or the number of channels differs.
    """
    content = _content(name)
    if not isinstance(content, FEATURES):
        raise UserError(
            f"{name}: not image features; expected FILE.npy, FILE.npz#KEY, "
            "FILE.safetensors#KEY or a column of a parquet table"
        )
    features = _grid(name, content)
    if features.shape[2] != channels:
        raise UserError(
            f"{name}: has {features.shape[2]:,} channels, but the encoder expects "
            f"{channels:,}; set encoder.channels={features.shape[2]}"
        )
    return features


@dataclass(frozen=True)
class PictureInfo:
    """Properties of a readable image.

    stamp: number by which a changed image is detected: the checksum of an image or of its features,
        or 0 for generated images
    channels: number of feature channels; None for an image of pixels
    """

    stamp: int
    channels: int | None


def check_picture(name: str) -> PictureInfo:
    """Returns the properties of an image or of image features.

    Raises UserError if the name does not refer to a valid image or valid features.
    """
    content = _content(name)
    if isinstance(content, FEATURES):
        grid = np.ascontiguousarray(_grid(name, content))
        return PictureInfo(zlib.crc32(grid.data), grid.shape[-1])
    _image(name, content)
    if name.startswith(PREFIX):
        return PictureInfo(stamp=0, channels=None)
    source = _encoded(name, content)
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    return PictureInfo(zlib.crc32(data), channels=None)


def _content(name: str) -> Any:
    """Returns the data to which an image name refers: an array of features, a table cell, or the
    path of an image file. File and folder names may contain the character #."""
    cell = _CELL.fullmatch(name)
    if cell:
        with reading(name):
            return _column(Path(cell[1]), cell[2])[int(cell[3])].as_py()
    array = _ARRAY.fullmatch(name)
    if array is None and Path(name).suffix.lower() != ".npy":
        return Path(name)
    with reading(name, " as features"):
        if array is None:
            return np.load(name, mmap_mode="r", allow_pickle=False)
        file, key = array.groups("")
        arrays = _archive(Path(file), os.getpid())
        if key not in arrays:
            problem = f"array {key} not found" if key else f"name an array as {file}#KEY"
            available = ", ".join(sorted(arrays)[:3]) + " …" * (len(arrays) > 3)
            raise UserError(f"{name}: {problem} (available: {available})")
        return arrays[key]()


@functools.lru_cache(maxsize=64)
def _archive(file: Path, process: int) -> Mapping[str, Callable[[], np.ndarray]]:
    """Opens an archive and returns functions that read its arrays, by key; pickled arrays are
    refused.

    file: path of the archive
    process: process id; each process needs its own file handle, since forked processes share the
        file position
    """
    if file.suffix.lower() == ".npz":
        arrays = np.load(file, allow_pickle=False)
        return {key: functools.partial(arrays.__getitem__, key) for key in arrays.files}
    from safetensors import safe_open

    opened = safe_open(file, "numpy")
    return {key: functools.partial(opened.get_tensor, key) for key in opened.keys()}  # noqa: SIM118


@functools.lru_cache(maxsize=4)
def _column(file: Path, column: str) -> Any:
    """Returns a column of a Parquet file, kept in memory in its stored format.

    Raises UserError if the column cannot be read.
    """
    import pyarrow.parquet

    with reading(file, f" as parquet with a column {column!r}"):
        return pyarrow.parquet.read_table(file, columns=[column], memory_map=True).column(column)


# Images


def image_of(name: str) -> np.ndarray:
    """Reads an image as a uint8 array [rows, columns, 1 or 3].

    Raises UserError if the image cannot be read.
    """
    return _image(name, _content(name))


def _image(name: str, content: Any) -> np.ndarray:
    if name.startswith(PREFIX):
        return page(name)[..., None]
    if isinstance(content, FEATURES):
        raise UserError(f"{name}: contains features, not an image; set encoder=grid")
    return _decoded(name, _encoded(name, content))


def _encoded(name: str, content: Any) -> str | Path | bytes:
    """Returns the path or the bytes of an encoded image, from the content that its name refers
    to."""
    if isinstance(content, dict):
        content = content.get("bytes") or content.get("path")
    return Path(name).parent / content if isinstance(content, str) else content or name


def thumbnail(name: str, longest: int) -> np.ndarray | None:
    """Returns an image of at most `longest` pixels per side; None if the image cannot be read."""
    try:
        return _scaled_down(image_of(name), longest)
    except UserError:  # features cannot be shown; unreadable images were reported earlier
        return None


def _decoded(name: str, file: str | Path | bytes) -> np.ndarray:
    require("PIL")
    from PIL import Image, ImageOps, UnidentifiedImageError

    with reading(name, " as an image"):
        try:
            with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as image:
                ImageOps.exif_transpose(image, in_place=True)  # cameras record their orientation
                return _pixels(image).reshape(image.height, image.width, -1)
        except UnidentifiedImageError:
            if not isinstance(file, bytes):
                check_no_pointer(Path(file))
            raise UserError(f"{name}: not an image in a format that Pillow supports") from None


def _pixels(image: Any) -> np.ndarray:
    """Returns the pixels of a Pillow image as a uint8 array: [rows, columns] for grey, otherwise
    [rows, columns, 3].
    """
    if image.mode == "F" or image.mode.startswith("I"):
        values = np.asarray(image).astype(np.float64)
        if not np.isfinite(values).all():
            raise ValueError("contains NaN or inf")
        scale = 1 / 256  # 16 bits per pixel
        if image.mode == "F" and values.max() <= 255:
            scale = 255 if values.max() <= 1 else 1
        return (values * scale).clip(0, 255).astype(np.uint8)
    if image.mode == "P":
        image = image.convert("RGBA")  # keeps the colours of transparent palette entries
    return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))


def _scaled_down(image: np.ndarray, longest: int) -> np.ndarray:
    """Scales an image [rows, columns, channels] down to sides of at most `longest` pixels."""
    side = max(image.shape[:2])
    if side <= longest:
        return image
    from PIL import Image

    rows, columns = (max(1, round(pixels * longest / side)) for pixels in image.shape[:2])
    picture = Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image)
    small = picture.resize((columns, rows), Image.Resampling.LANCZOS)
    return np.asarray(small).reshape(rows, columns, -1)


# Features


def _grid(name: str, content: Any) -> np.ndarray:
    """Returns features as a grid [rows, columns, channels].

    Raises UserError if the features are not numeric, or have the wrong number of dimensions.
    """
    with reading(name, " as features"):
        if np.iscomplexobj(content):
            raise ValueError("contains complex numbers")
        features = np.asarray(content, np.float32)
    if features.ndim not in (2, 3) or 0 in features.shape:
        raise UserError(
            f"{name}: features of shape {list(features.shape)}, expected [positions, channels] or "
            "[rows, columns, channels]"
        )
    if not np.isfinite(features).all():
        raise UserError(f"{name}: features contain NaN, inf or values too large for float32")
    if features.ndim == 2:
        positions, channels = features.shape
        side = math.isqrt(positions)
        rows = side if side * side == positions else 1
        features = features.reshape(rows, -1, channels)  # [rows, columns, channels]
    return features
