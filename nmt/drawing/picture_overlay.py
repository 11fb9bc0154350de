"""A picture under the attention to its places."""

from __future__ import annotations

import base64
import io

import numpy as np

from nmt.data.pictures import shown

WIDEST = 320
"""Pixels of the longer side of a picture that is shown; larger ones are scaled down."""
WHITE, WARM = np.array([255, 255, 255, 200]), np.array([240, 115, 10, 140])
"""Red, green, blue and opacity of what lies over places without attention, and over the one with the most."""


def seen(name: str) -> np.ndarray | None:
    """The picture of a name in three colours, None if it is no image. Few pixels are made larger, each a square."""
    found = shown(name, WIDEST)
    if found is None:
        return None
    times = max(1, WIDEST // (2 * max(found.shape[:2])))
    return np.broadcast_to(found, (*found.shape[:2], 3)).repeat(times, 0).repeat(times, 1)


def veil(weights: np.ndarray) -> np.ndarray:
    """What is laid over a picture [rows, columns, 4]: white where nothing is attended to, clear and warm where most is."""
    share = (weights / max(float(weights.max()), 1e-9))[..., None]
    return (WHITE + share * (WARM - WHITE)).round().astype(np.uint8)


def png(image: np.ndarray) -> str:
    """An image as an address that holds all of it."""
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(written, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
