"""Images of handwritten digits, drawn from their names.

The digits are the 1,797 scans of 8 x 8 pixels in scikit-learn (Alpaydin & Kaynak 1998). The name of
an image describes its content, so no file is needed:

    digits:24x24/4,402@3,1/1,71@13,9      24 rows and columns; a two-digit number made of scans 4
                                          and 402 at row 3, column 1; another at row 13, column 9
"""

import functools
import re

import numpy as np

from nmt.foundation.errors import UserError
from nmt.foundation.extras import require

PREFIX = "digits:"
"""Prefix of the name of a generated image of digits."""
SIDE = 8
"""Height and width of the scan of a digit, in pixels."""
_NUMBER = re.compile(r"/(\d+(?:,\d+)*)@(\d+),(\d+)")
_PAGE = re.compile(PREFIX + r"(\d{1,4})x(\d{1,4})((?:/\d+(?:,\d+)*@\d+,\d+)+)")
"""Regular expression for the name of an image of digits, such as digits:40x60/3,5@2,10: height and
width, then for each number a slash, its digits, and its row and column in the image."""


def page(name: str) -> np.ndarray:
    """Draws the image with the given name as a uint8 array [rows, columns], with dark digits on
    white.

    Raises UserError if the name is invalid.
    """
    match = _PAGE.fullmatch(name)
    if match is None:
        raise UserError(
            f"{name}: invalid description of an image of digits; expected the image size, and the "
            f"digit scans and position of each number, such as {PREFIX}16x32/5,7@0,8. The example "
            "is an image of 16 rows and 32 columns with the digit scans number 5 and 7, whose top "
            "left corner is at row 0, column 8"
        )
    images, _ = digit_scans()  # [1797, 8, 8]
    pixels = np.full((int(match[1]), int(match[2])), 255, np.uint8)
    for number in _NUMBER.finditer(match[3]):
        for k, i in enumerate(map(int, number[1].split(","))):
            top = int(number[2])
            left = int(number[3]) + SIDE * k
            region = pixels[top : top + SIDE, left : left + SIDE]
            if i >= len(images) or region.shape != (SIDE, SIDE):
                raise UserError(
                    f"{name}: digit scan {i} cannot be drawn. Its index must be below "
                    f"{len(images):,}, and its {SIDE} x {SIDE} pixels must be inside the image of "
                    f"{match[1]} x {match[2]} pixels"
                )
            region[:] = np.minimum(region, images[i])  # overlapping digits stay visible
    return pixels


@functools.cache
def digit_scans() -> tuple[np.ndarray, np.ndarray]:
    """Returns scikit-learn's scans, dark on white [1797, 8, 8], and their digits [1797]."""
    require("sklearn")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return (255 - digits.images * (255 / 16)).astype(np.uint8), digits.target
