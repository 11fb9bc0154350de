"""Pictures: learning curves, maps of weights, marked texts, by matplotlib (imported only here). They are made without
pyplot, so nothing of a notebook or of another program's windows changes."""

from __future__ import annotations

import contextlib
import functools
import logging
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.drawing.picture_overlay import veil
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice

try:
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise UserError(advice("matplotlib")) from None

log = logging.getLogger(__name__)
INK, LINE, ACCENT = "#222222", "#3b6ea5", "#c0504d"


def learning_curve(
    records: Sequence[dict[str, Any]], metric: str, path: Path, title: str, unit: str
) -> None:
    """Training and validation loss (in nats per `unit`) beside the validation metric, against epochs."""
    train = [r for r in records if r["kind"] == "train"]
    validation = [r for r in records if r["kind"] == "validation"]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(
        [r["epoch"] for r in train],
        [r["loss"] for r in train],
        color=LINE,
        alpha=0.5,
        lw=1,
        marker="." if len(train) < 20 else "",
        label="training (with smoothing, dropout)",
    )
    left.plot(
        [r["epoch"] for r in validation],
        [r["loss"] for r in validation],
        "o-",
        color=ACCENT,
        ms=3,
        label="validation",
    )
    left.set(xlabel="epoch", ylabel=f"nats per {unit.removesuffix('s')}")
    left.legend(frameon=False)
    figures = [
        name for name in validation[0] if name not in ("kind", "update", "epoch", "best", "loss")
    ]
    shown = metric if metric in figures else figures[0]
    right.plot(
        [r["epoch"] for r in validation], [r[shown] for r in validation], "o-", color=ACCENT, ms=3
    )
    right.set(xlabel="epoch", ylabel=f"validation {shown}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.2)
        axes.set_xlim(left=0)
    figure.suptitle(literal(title), fontsize=10, color=INK)
    figure.savefig(path, dpi=150)


@dataclass(frozen=True)
class Panel:
    """Weights [target, source] between words, and what stands below them."""

    source: Sequence[str]
    target: Sequence[str]
    weights: np.ndarray
    caption: str = ""


def maps(panels: Sequence[Panel], columns: int) -> Figure:
    """Heat maps, `columns` side by side: source words are columns, target words are rows, dark means attended."""
    columns = min(columns, len(panels))
    rows = (len(panels) + columns - 1) // columns
    widths, heights = (
        max(len(each.source) for each in panels),
        max(len(each.target) for each in panels),
    )
    left, top = (
        0.08 * max(len(_short(word)) for each in panels for word in getattr(each, side))
        for side in ("target", "source")
    )
    with _fonts("".join(word for each in panels for word in (*each.source, *each.target))):
        size = (columns * (1.2 + left + 0.27 * widths), rows * (1.0 + top + 0.27 * heights))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for each, ax in zip(panels, axes.flat, strict=False):
            ax.imshow(each.weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
            ax.set_xticks(
                range(len(each.source)),
                [_short(w) for w in each.source],
                rotation=60,
                ha="left",
                fontsize=8,
            )
            ax.set_yticks(range(len(each.target)), [_short(w) for w in each.target], fontsize=8)
            ax.xaxis.tick_top()
            ax.tick_params(length=0)
            ax.set_xticks([x - 0.5 for x in range(1, len(each.source))], minor=True)
            ax.set_yticks([y - 0.5 for y in range(1, len(each.target))], minor=True)
            ax.grid(which="minor", color="#e8e8e8", lw=0.5)
            ax.tick_params(which="minor", length=0)
            ax.set_xlabel(literal(each.caption), fontsize=8, color="#666666")
        for ax in axes.flat[len(panels) :]:
            ax.set_visible(False)
    return figure


@dataclass(frozen=True)
class Row:
    """A picture [rows, columns, 3] (None: nothing to see), the words of its caption, and for each the attention to its
    places [words, rows, columns]; `caption`: what stands before it."""

    image: np.ndarray | None
    words: Sequence[str]
    places: np.ndarray
    caption: str = ""


def looks(rows: Sequence[Row]) -> Figure:
    """A row of pictures for each caption: the picture alone, then once for each word with the attention over it,
    smoothed as in Xu et al. 2015, figure 3."""
    most = max(len(each.words) for each in rows) + 1
    shapes = [
        each.places.shape[1:] if each.image is None else each.image.shape[:2] for each in rows
    ]
    heights = [1.1 * shape[0] / shape[1] for shape in shapes]
    with _fonts("".join(word for each in rows for word in each.words)):
        figure = Figure(
            figsize=(1.18 * most, sum(heights) + 0.42 * len(rows)), layout="constrained"
        )
        grid = figure.subplots(len(rows), most, squeeze=False, height_ratios=heights)
        for each, shape, line in zip(rows, shapes, grid, strict=True):
            ground = np.full((*shape, 3), 255, np.uint8) if each.image is None else each.image
            for ax, word, weights in zip(
                line, [each.caption, *each.words], [None, *each.places], strict=False
            ):
                ax.imshow(ground, interpolation="nearest", extent=(0, shape[1], shape[0], 0))
                if weights is not None:
                    ax.imshow(
                        veil(weights), interpolation="bicubic", extent=(0, shape[1], shape[0], 0)
                    )
                ax.set_title(_short(word), fontsize=8, color=INK)
                ax.set_xticks([])
                ax.set_yticks([])
                ax.spines[:].set(color="#d0d0d0", lw=0.6)
            for ax in line[len(each.words) + 1 :]:
                ax.set_visible(False)
    return figure


@dataclass(frozen=True)
class Marked:
    """A text under its title; `shares` say how dark the ground of each word is, the greatest the darkest."""

    title: str
    words: Sequence[str]
    shares: np.ndarray


def marked_texts(texts: Sequence[Marked]) -> Figure:
    """Texts under their titles, each word on a background as dark as its share."""
    width, line = 9.0, 0.27
    with (
        _told_before(),
        _fonts("".join(word for each in texts for word in (each.title, *each.words))),
    ):
        draft = Figure(figsize=(width, 1.0))
        renderer, inch = FigureCanvasAgg(draft).get_renderer(), draft.dpi
        placed: list[
            tuple[float, float, str, float | None]
        ] = []  # x, y from above in inches, text, darkness
        y = 0.3
        for each in texts:
            placed.append((0.2, y, each.title, None))
            x, y = 0.2, y + line
            most = max(float(each.shares.max()), 1e-12) if each.shares.size else 1.0
            for word, share in zip(each.words, each.shares, strict=True):
                size = (
                    draft.text(0, 0, literal(word), fontsize=9).get_window_extent(renderer).width
                    / inch
                )
                if x + size > width - 0.2 and x > 0.2:
                    x, y = 0.2, y + line
                placed.append((x, y, word, float(share / most)))
                x += size + 0.09
            y += 1.6 * line
        figure = Figure(figsize=(width, y))
        for x, down, text, dark in placed:
            ground: dict[str, Any] | None = None
            if dark is not None:
                ground = {
                    "facecolor": (0.12, 0.38, 0.63, 0.7 * dark),
                    "edgecolor": "none",
                    "pad": 1.5,
                }
            weight = "bold" if dark is None else "normal"
            figure.text(
                x / width,
                1 - down / y,
                literal(text),
                fontsize=9,
                weight=weight,
                color=INK,
                va="baseline",
                bbox=ground,
            )
    return figure


def svg(figure: Figure) -> str:
    """A figure as a part of a page: no ground, and text and lines in the page's own colour, in the dark too."""
    import io
    import re

    written = io.StringIO()
    with (
        _told_before(),
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "nmt", "font.size": 11}),
    ):
        figure.patch.set_alpha(0)
        for axes in figure.axes:
            axes.patch.set_alpha(0)
        figure.savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, rest = text.split(
        ">", 1
    )  # as wide as drawn, or as the page if that is less: the viewBox keeps the proportions
    width = figure.get_figwidth()
    text = (
        re.sub(r' (width|height)="[^"]*"', "", head) + f' style="max-width: {width:.1f}in">' + rest
    )
    for black in ("#000000", "#262626", "black"):
        text = text.replace(f"fill: {black}", "fill: currentColor").replace(
            f"stroke: {black}", "stroke: currentColor"
        )
    return text.replace("<text ", '<text fill="currentColor" ')


def save(figure: Figure, path: Path) -> None:
    with _told_before():
        figure.savefig(path, dpi=130)


@contextlib.contextmanager
def _told_before() -> Iterator[None]:
    """Without matplotlib's warnings about single letters that a font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def _fonts(text: str) -> Any:
    """A context in which letters that the usual font lacks come from another that is installed. A message names scripts
    that no font has."""
    usual, has = matplotlib.rcParams["font.family"], _usual_characters()
    missing = sorted(
        c
        for c in set(text)
        if ord(c) not in has and not c.isspace() and unicodedata.category(c)[0] != "C"
    )
    others, lost = dict[str, None](), list[str]()
    for character in missing:
        found = _font_with(character)
        if found is None:
            lost.append(character)
        else:
            others[found] = None
    if lost:
        scripts = sorted(
            {unicodedata.name(character, "UNKNOWN").split()[0].title() for character in lost}
        )
        log.warning(
            "pictures: no installed font has %s (%s), so they are drawn as boxes. Install one that has, such as Noto Sans "
            "of these scripts; .html and .json have all",
            " ".join(lost[:8]), ", ".join(scripts),
        )  # fmt: skip
    return matplotlib.rc_context({"font.family": [*usual, *others]})


def _usual_characters() -> frozenset[int]:
    """The characters of the font that is used without asking."""
    return _characters(font_manager.findfont(font_manager.FontProperties()))


@functools.cache
def _characters(file: str) -> frozenset[int]:
    return frozenset(font_manager.get_font(file).get_charmap())


@functools.cache
def _font_with(character: str) -> str | None:
    """The name of an installed font that has a character, None if there is none."""
    for font in sorted(
        font_manager.fontManager.ttflist,
        key=lambda font: (font.style != "normal", font.weight != 400),
    ):
        with contextlib.suppress(OSError, RuntimeError):  # a font that cannot be read has nothing
            if ord(character) in _characters(font.fname):
                return font.name
    return None


LONGEST = 28
"""Characters shown of a word beside a map."""


def _short(word: str) -> str:
    return literal(word if len(word) <= LONGEST else word[: LONGEST - 1] + "…")


def literal(text: str) -> str:
    """Text with $ escaped, so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")
