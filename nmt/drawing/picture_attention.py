"""Attention to the cells of a source image: overlays of attention weights, and labels."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.pictures import thumbnail

WIDEST = 320
"""Maximum length of the longer side of a drawn image in pixels; larger images are scaled down."""
WHITE = np.array([255, 255, 255, 200])
"""RGBA colour of grid cells without attention, each component from 0 to 255."""
WARM = np.array([240, 115, 10, 140])
"""RGBA colour of the grid cell with the most attention, each component from 0 to 255."""


@dataclass(frozen=True)
class PictureRow:
    """Attention weights of a model for the cells of a source image.

    name: name of the model
    image: RGB values [rows, columns, 3]
    target: words or subwords of the target
    weights: attention weights [target, rows, columns] of the image's grid cells
    title: text above the image in a figure
    """

    name: str
    image: np.ndarray
    target: Sequence[str]
    weights: np.ndarray
    title: str


def source_picture(name: str, grid: tuple[int, ...]) -> np.ndarray:
    """Returns an image as RGB values, [rows, columns, 3]; white cells if the file is not an image.

    Small images are enlarged: each pixel becomes a square.

    name: file name of the image, or of image features
    grid: number of rows and columns of the image's grid cells
    """
    image = thumbnail(name, WIDEST)
    if image is None:
        image = np.full((*grid, 1), 255, np.uint8)
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


def picture_label(word: str, weights: np.ndarray) -> str:
    """Returns the label of a target word's image, which HTML pages show on hover: the largest
    attention weight and its grid cell. If the word also attends to source words, the label contains
    the total weight of the image.

    weights: attention weights [rows, columns] of the image's grid cells
    """
    # The description counts rows and columns from 1.
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    label = f"{word}: maximum {weights.max():.2f} at row {row + 1}, column {column + 1}"
    total = float(weights.sum())
    return label if total > 0.995 else f"{label}; total of the image {total:.2f}"


def data_url(image: np.ndarray) -> str:
    """Returns an image as a data URL, which HTML pages can embed."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
