"""Images overlaid with attention weights, for HTML pages."""

import base64
import io

import numpy as np

from nmt.data.pictures import thumbnail

WIDEST = 320
"""Maximum length of the longer side of a drawn image in pixels; larger images are scaled down."""
WHITE = np.array([255, 255, 255, 200])
"""RGBA colour of grid cells without attention, each component from 0 to 255."""
WARM = np.array([240, 115, 10, 140])
"""RGBA colour of the grid cell with the most attention, each component from 0 to 255."""


def source_picture(name: str) -> np.ndarray | None:
    """Returns an image as RGB values, [rows, columns, 3], or None if the file is not an image.

    Small images are enlarged: each pixel becomes a square.
    """
    image = thumbnail(name, WIDEST)
    if image is None:
        return None
    size = max(1, WIDEST // (2 * max(image.shape[:2])))  # side of an enlarged pixel, in pixels
    return np.broadcast_to(image, (*image.shape[:2], 3)).repeat(size, 0).repeat(size, 1)


def attention_overlay(weights: np.ndarray) -> np.ndarray:
    """Returns the overlay for attention weights: RGBA values, [rows, columns, 4].

    Cells without attention are nearly opaque white; the cell with the most attention is translucent
    orange.

    weights: [rows, columns] attention weights of the grid cells
    """
    share = (weights / max(float(weights.max()), 1e-9))[..., None]  # [rows, columns, 1]
    return (WHITE + share * (WARM - WHITE)).round().astype(np.uint8)


def data_url(image: np.ndarray) -> str:
    """Returns an image as a data URL, which HTML pages can embed."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
