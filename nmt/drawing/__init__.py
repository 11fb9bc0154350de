"""Drawings of attention maps, word importances and learning curves, as HTML pages, images or JSON.

Modules in reading order: pages, plots, attention_figure, attention_map, then the others in any
order.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nmt.foundation.extras import advice, installed
from nmt.foundation.part_limits import ConfigError, broken

INK = "#222222"
"""Colour of text in images."""
LONGEST = 28
"""Maximum number of characters of a word in an image."""
FIGURES = (".png", ".pdf", ".svg")
"""File name extensions of the image formats that matplotlib writes."""
ENDINGS = (".html", *FIGURES, ".json")
"""File name extensions of drawings."""
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML 1.0 does not allow."""


@dataclass(frozen=True)
class FigureStyle:
    """Size of an image and of its text.

    width: width in inches, such as 3.3 for a column of a two-column paper; None to fit the contents
    font_size: size of all text in points; None for the default sizes
    """

    width: float | None = None
    font_size: float | None = None


USUAL = FigureStyle()
"""Style of an image whose size fits its contents."""


def unwritable(key: str, name: str | None) -> Iterator[ConfigError]:
    """Yields an error if a figure cannot be written to the file.

    key: key of the setting that contains the name, for messages
    name: name of the file; None if no figure is requested
    """
    if name is None:
        return
    missing = name.endswith(FIGURES) and not installed("matplotlib")
    is_writable = os.access(Path(name).parent, os.W_OK)
    yield from broken(
        (not name.endswith(ENDINGS), key, "must end in .html, .png, .pdf, .svg or .json", name),
        (missing, key, f"{advice('matplotlib')}, or write a .html file", name),
        (not is_writable, key, "the folder was not found, or is read-only", name),
    )


def short(word: str) -> str:
    """Returns a word as it is drawn in an image, cut to at most LONGEST characters."""
    return literal(word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…")


def literal(text: str) -> str:
    """Returns a text with $ escaped, so that matplotlib does not parse the text as a formula.
    Characters that SVG files must not contain are replaced."""
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text).replace("$", r"\$")
