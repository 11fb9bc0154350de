"""Matplotlib figures: learning curves, heat maps and texts with highlighted words.

Only this module imports matplotlib. It does not use pyplot, so it changes no global state of a
notebook or of another program.
"""

import contextlib
import functools
import io
import logging
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.drawing.picture_overlay import attention_overlay
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice

try:
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from matplotlib.transforms import ScaledTranslation
except ImportError:
    raise UserError(advice("matplotlib")) from None

log = logging.getLogger(__name__)
INK = "#222222"
LINE = "#3b6ea5"
ACCENT = "#c0504d"
SHADE = (0.12, 0.38, 0.63)
"""RGB colour behind highlighted words, from 0 to 1; the opacity grows with the importance."""
LONGEST = 28
"""Maximum number of characters of a word in the labels of a heat map."""
CAPTION_CHARACTERS = 60
"""Maximum number of characters in a line below a heat map."""
TEXT_WIDTH = 9.0
"""Width of a figure of highlighted texts, in inches."""
MARGIN = 0.2
"""Left and right margin of highlighted texts, in inches."""
LINE_HEIGHT = 0.27
"""Line spacing of highlighted texts, in inches."""
WORD_SPACE = 0.09
"""Space between words of highlighted texts, in inches."""


def learning_curve(
    records: Sequence[dict[str, Any]], metric: str, path: Path, title: str, unit: str
) -> None:
    """Draws the training and validation loss and a validation metric against epochs.

    records: lines of metrics.jsonl
    metric: validation metric to draw; if the records lack it, the first metric that they have
    path: output file
    title: title of the figure
    unit: plural noun of the loss unit; `tokens` means nats per token
    """
    train = [record for record in records if record["kind"] == "train"]
    validation = [record for record in records if record["kind"] == "validation"]
    metrics = validation[0].keys() - {"kind", "update", "epoch", "best", "loss"}
    shown_metric = metric if metric in metrics else next(k for k in validation[0] if k in metrics)
    figure, (losses, scores) = row_of_axes(2, width=9, height=3.4)
    losses.plot(
        *_curve(train, "loss"),
        color=LINE,
        alpha=0.5,
        lw=1,
        marker="." if len(train) < 20 else "",
        label="train_loss (with label smoothing and dropout)",
    )
    losses.plot(*_curve(validation, "loss"), "o-", color=ACCENT, ms=3, label="validation nll")
    losses.set(xlabel="epoch", ylabel=f"nats per {unit.removesuffix('s')}")
    losses.legend(frameon=False)
    scores.plot(*_curve(validation, shown_metric), "o-", color=ACCENT, ms=3)
    scores.set(xlabel="epoch", ylabel=f"validation {shown_metric}")
    for axes in (losses, scores):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(left=0)
    figure.suptitle(literal(title), fontsize=10, color=INK)
    figure.savefig(path, dpi=150)


def row_of_axes(count: int, width: float, height: float) -> tuple[Figure, Sequence[Any]]:
    """Returns a figure with axes side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    row = figure.subplots(1, count, squeeze=False)[0]
    for axes in row:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    return figure, row


def _curve(records: Sequence[dict[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """Returns two lists from the given records: epochs, and values of the metric `key`."""
    return [record["epoch"] for record in records], [record[key] for record in records]


@dataclass(frozen=True)
class Panel:
    """Data of a heat map of attention weights.

    source, target: words of both sides
    weights: [target, source] attention weights
    caption: text below the heat map
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: np.ndarray
    caption: str = ""


def heat_maps(panels: Sequence[Panel], columns: int) -> Figure:
    """Returns a figure with heat maps.

    Columns are source words, rows are target words, and darker cells have larger weights.

    panels: heat maps to draw
    columns: number of heat maps side by side
    """
    columns = min(columns, len(panels))
    rows = (len(panels) + columns - 1) // columns
    sources = [word for panel in panels for word in panel.source]
    targets = [word for panel in panels for word in panel.target]
    # Size: space for the labels, and 0.27 inches per word.
    width = 1.2 + _label_inches(targets) + 0.27 * max(len(panel.source) for panel in panels)
    height = 1.0 + _label_inches(sources) + 0.27 * max(len(panel.target) for panel in panels)
    with fonts_for([*sources, *targets, *(panel.caption for panel in panels)]):
        figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for panel, axes in zip(panels, grid.flat, strict=False):
            image = _draw_heat_map(axes, panel)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        scale = figure.colorbar(image, ax=grid, shrink=0.5, aspect=30, pad=0.02)
        scale.set_label("attention weight", fontsize=8)
        scale.ax.tick_params(labelsize=7)
    return figure


def _label_inches(words: Iterable[str]) -> float:
    return 0.08 * max(len(_short(word)) for word in words)


def _draw_heat_map(axes: Any, panel: Panel) -> Any:
    """Draws a heat map and returns its matplotlib image, which the colour bar needs."""
    source = [_short(word) for word in panel.source]
    target = [_short(word) for word in panel.target]
    image = axes.imshow(panel.weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(range(len(source)), source, rotation=60, ha="left", fontsize=8)
    axes.set_yticks(range(len(target)), target, fontsize=8)
    axes.xaxis.tick_top()
    # Minor ticks between the cells draw the lines of a grid.
    axes.set_xticks(np.arange(1, len(source)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(target)) - 0.5, minor=True)
    axes.tick_params(which="both", length=0)
    axes.grid(which="minor", color="#e8e8e8", lw=0.5)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("source", fontsize=8, color="#666666")
    axes.set_ylabel("translation", fontsize=8, color="#666666")
    caption = textwrap.fill(literal(panel.caption), CAPTION_CHARACTERS)
    axes.set_title(caption, y=0, pad=-6, va="top", fontsize=8, color="#666666")
    return image


@dataclass(frozen=True)
class PictureRow:
    """Data of an image with its caption, which is drawn once per word.

    image: [rows, columns, 3] RGB values; None for no image
    words: words of the caption
    places: [words, rows, columns] attention weights of the grid cells
    caption: title of the image without attention
    """

    image: np.ndarray | None
    words: Sequence[str]
    places: np.ndarray
    caption: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the image, or of the grid without an image."""
        rows, columns = self.places.shape[1:] if self.image is None else self.image.shape[:2]
        return rows, columns


def picture_rows(rows: Sequence[PictureRow]) -> Figure:
    """Returns a figure that shows each image alone, then once per word with attention weights.

    The drawing follows figure 3 of Xu et al. (2015).
    """
    columns = max(len(row.words) for row in rows) + 1
    # height in inches, from the aspect ratio
    heights = [1.1 * row.shape[0] / row.shape[1] for row in rows]
    with fonts_for(word for row in rows for word in row.words):
        size = (1.18 * columns, sum(heights) + 0.42 * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for row, line in zip(rows, grid, strict=True):
            _draw_picture(line[0], row, row.caption, None)
            for axes, word, weights in zip(line[1:], row.words, row.places, strict=False):
                _draw_picture(axes, row, word, weights)
            for axes in line[len(row.words) + 1 :]:
                axes.set_visible(False)
    return figure


def _draw_picture(axes: Any, row: PictureRow, title: str, weights: np.ndarray | None) -> None:
    image = np.full((*row.shape, 3), 255, np.uint8) if row.image is None else row.image
    # The image and its attention weights cover the same area.
    extent = (0, row.shape[1], row.shape[0], 0)
    axes.imshow(image, interpolation="nearest", extent=extent)
    if weights is not None:
        axes.imshow(attention_overlay(weights), interpolation="bicubic", extent=extent)
    axes.set_title(_short(title), fontsize=8, color=INK)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color="#d0d0d0", lw=0.6)


@dataclass(frozen=True)
class MarkedText:
    """Data of a text whose important words are highlighted.

    title: title above the text
    words: words of the text
    shares: importance of each word; the greatest gets the darkest background
    """

    title: str
    words: Sequence[str]
    shares: np.ndarray


def marked_texts(texts: Sequence[MarkedText]) -> Figure:
    """Returns a figure of texts, each word on a background as dark as its importance."""
    with _no_glyph_warnings(), fonts_for(w for text in texts for w in (text.title, *text.words)):
        figure = Figure(figsize=(TEXT_WIDTH, 1.0))
        renderer = FigureCanvasAgg(figure).get_renderer()
        # Positions in inches from the upper left corner, because the height is not known yet.
        corner: Any = figure.transFigure
        place = figure.dpi_scale_trans + ScaledTranslation(0, 1, corner)
        style: Any = {"fontsize": 9, "color": INK, "va": "baseline", "transform": place}
        y = 0.3
        for text in texts:
            figure.text(MARGIN, -y, literal(text.title), weight="bold", **style)
            y += LINE_HEIGHT
            x = MARGIN
            greatest = max([1e-12, *text.shares])
            for word, share in zip(text.words, text.shares, strict=True):
                background = {"facecolor": (*SHADE, 0.7 * share / greatest), "edgecolor": "none"}
                label = figure.text(x, -y, literal(word), **style)
                width = label.get_window_extent(renderer).width / figure.dpi  # width in inches
                if x + width > TEXT_WIDTH - MARGIN and x > MARGIN:
                    x = MARGIN
                    y += LINE_HEIGHT
                    label.set_position((x, -y))  # the word becomes the first one of the next line
                label.set_bbox({**background, "pad": 1.5})
                x += width + WORD_SPACE
            y += 1.6 * LINE_HEIGHT  # vertical space before the next title
        figure.set_size_inches(TEXT_WIDTH, y)
    return figure


def svg(figure: Figure) -> str:
    """Returns a figure as SVG for an HTML page, without background, in the colours of the page."""
    file = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "nmt", "font.size": 11}
    with _no_glyph_warnings(), matplotlib.rc_context(settings):
        for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
            patch.set_alpha(0)  # transparent, so that the page's background is visible
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # The width is limited by the page; the viewBox preserves the proportions.
    head, body = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    head += f' style="max-width: {figure.get_figwidth():.1f}in"'
    text = re.sub(r"(fill|stroke): (#000000|#262626|black)", r"\1: currentColor", f"{head}>{body}")
    return text.replace("<text ", '<text fill="currentColor" ')


def save(figure: Figure, path: Path) -> None:
    # Text stays text in .pdf files, with embedded TrueType fonts, and in .svg files.
    settings: Any = {"pdf.fonttype": 42, "svg.fonttype": "none"}
    with _no_glyph_warnings(), matplotlib.rc_context(settings):
        figure.savefig(path, dpi=130)


@contextlib.contextmanager
def _no_glyph_warnings() -> Iterator[None]:
    """Suppresses matplotlib's warning for each missing glyph; `fonts_for` logs a single warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def fonts_for(words: Iterable[str]) -> Any:
    """Returns a context manager that adds fallback fonts for characters missing in the default
    font.

    Logs one warning for all scripts that no installed font has.
    """
    usual_font = font_manager.findfont(font_manager.FontProperties())
    missing = {c for c in "".join(words) if unicodedata.category(c)[0] not in "CZ"}
    missing -= font_characters(usual_font)
    # Matplotlib uses the first family that has the character.
    families = list(matplotlib.rcParams["font.family"])
    fonts = [
        font
        for font in font_manager.fontManager.ttflist
        # matplotlib's "Last Resort" font draws a box for every character.
        if not font.name.startswith("Last Resort")
    ]
    fonts.sort(key=lambda font: (font.style != "normal", font.weight != 400))
    for font in fonts if missing else []:
        if missing & font_characters(font.fname):
            families.append(font.name)  # fallback fonts follow the usual font
            missing -= font_characters(font.fname)
    if missing:
        scripts = {unicodedata.name(c, "UNKNOWN").split()[0].title() for c in missing}
        log.warning(
            "images: no installed font has the characters %s (%s), which are drawn as boxes. "
            "Install a font such as Noto Sans for these scripts, or write .html or .json",
            " ".join(sorted(missing)[:8]),
            ", ".join(sorted(scripts)),
        )
    return matplotlib.rc_context({"font.family": families})


@functools.cache
def font_characters(file: str) -> frozenset[str]:
    """Returns the characters of a font, or an empty set if the file cannot be read."""
    try:
        return frozenset(map(chr, font_manager.get_font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


def _short(word: str) -> str:
    return literal(word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…")


def literal(text: str) -> str:
    """Returns a text with $ escaped, so that matplotlib does not parse the text as a formula."""
    return text.replace("$", r"\$")
