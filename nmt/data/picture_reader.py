"""Batches of images, read by name and cached in memory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.foundation.interfaces import Pictures

CACHE_BYTES = 2**29
"""Maximum bytes of images cached in memory; the images read first are kept."""


class Reader:
    """Thread-safe reader that builds a batch of images and caches some images in memory.

    read: function that reads an image [rows, columns, channels], given its name, channels and
        settings
    channels: number of channels of each image
    settings: further arguments of `read`
    """

    def __init__(self, read: Callable[..., np.ndarray], channels: int, **settings: int) -> None:
        self.read = read
        self.channels = channels
        self.settings = settings
        self._cache: dict[str, tuple[Any, np.ndarray]] = {}
        """State of the file and content of each cached image, by name."""
        self._bytes = 0

    def __str__(self) -> str:
        settings = {"channels": self.channels, **self.settings}
        return ", ".join(
            [self.read.__name__, *(f"{key}={value}" for key, value in settings.items())]
        )

    def __call__(self, names: Sequence[str]) -> Pictures:
        """Returns a zero-padded batch of the named images; the name "" gives an image of size 0.

        Raises UserError if an image cannot be read.
        """
        # The shape of each image is [rows, columns, C].
        pictures = [self._read(name) for name in names]
        sizes = np.array([picture.shape[:2] for picture in pictures], np.int64).reshape(-1, 2)
        rows, columns = sizes.max(0, initial=0)
        values = np.zeros((len(pictures), rows, columns, self.channels), np.float32)
        # values [B, rows, columns, C], zero-padded at the bottom and on the right
        for padded, picture in zip(values, pictures, strict=True):
            if picture.dtype == np.uint8:
                picture = picture * np.float32(1 / 255)
            padded[: picture.shape[0], : picture.shape[1]] = picture
        return Pictures(
            values=torch.from_numpy(values),
            sizes=torch.from_numpy(sizes),
            even=bool((sizes == sizes[:1]).all()),
        )

    def _read(self, name: str) -> np.ndarray:
        if not name:
            return np.zeros((0, 0, self.channels), np.uint8)
        state = _state_of(name)
        cached_state, cached = self._cache.get(name, (None, None))
        if cached is not None and state in (cached_state, None):
            return cached
        picture = self.read(name, self.channels, **self.settings)
        added = picture.nbytes - (0 if cached is None else cached.nbytes)
        # Threads that read the same image at the same time may count its bytes twice.
        if self._bytes + added <= CACHE_BYTES:
            self._cache[name] = state, picture
            self._bytes += added
        return picture


def _state_of(name: str) -> tuple[int, int] | None:
    """Returns the time of the last change and the size of an image file; None for a file that was
    removed, an image in a table or archive, and a generated image."""
    try:
        status = Path(name).stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size
