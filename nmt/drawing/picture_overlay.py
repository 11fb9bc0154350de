"""Attention laid over a picture."""

import base64
import io

import numpy as np

from nmt.data.pictures import thumbnail

WIDEST = 320
"""Pixels of the longer side of a shown picture; larger ones are scaled down."""
WHITE = np.array([255, 255, 255, 200])
"""Red, green, blue and opacity over places without attention."""
WARM = np.array([240, 115, 10, 140])
"""Red, green, blue and opacity over the place with the most attention."""


def source_picture(name: str) -> np.ndarray | None:
    """Returns a picture in three colours, [rows, columns, 3]; None if it is not an image.

    Few pixels are enlarged, each to a square.
    """
    image = thumbnail(name, WIDEST)
    if image is None:
        return None
    size = max(1, WIDEST // (2 * max(image.shape[:2])))
    return np.broadcast_to(image, (*image.shape[:2], 3)).repeat(size, 0).repeat(size, 1)


def attention_overlay(weights: np.ndarray) -> np.ndarray:
    """[rows, columns] → [rows, columns, 4]: white without attention, clear and warm with most."""
    share = (weights / max(float(weights.max()), 1e-9))[..., None]
    return (WHITE + share * (WARM - WHITE)).round().astype(np.uint8)


def data_url(image: np.ndarray) -> str:
    """An image as a data URL."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
