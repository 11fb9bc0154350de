"""Drawings of attention maps, word importances and learning curves, as HTML pages, images or JSON.

Reading order: pages, plots, attention_figure, attention_map, the rest in any order.
"""

from dataclasses import dataclass

INK = "#222222"
"""Colour of text in images."""
LONGEST = 28
"""Maximum number of characters of a word in an image."""
FIGURES = (".png", ".pdf", ".svg")
"""File name extensions of the image formats that matplotlib writes."""


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


def short(word: str) -> str:
    """Returns a word as it is drawn in an image, cut to at most LONGEST characters."""
    return literal(word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…")


def literal(text: str) -> str:
    """Returns a text with $ escaped, so that matplotlib does not parse the text as a formula."""
    return text.replace("$", r"\$")
