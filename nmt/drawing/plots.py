"""Matplotlib figures: learning curves, heat maps and texts with highlighted words.

Only this module imports matplotlib. The module does not use pyplot, so it changes no global state
of a notebook or of another program.
"""

import contextlib
import functools
import io
import logging
import math
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from nmt.drawing import USUAL, FigureStyle
from nmt.drawing.picture_overlay import attention_overlay
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice
from nmt.metric import TITLES

try:
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.ticker import MaxNLocator
    from matplotlib.transforms import ScaledTranslation
except ImportError:
    raise UserError(advice("matplotlib")) from None

log = logging.getLogger(__name__)
INK = "#222222"
LINE = "#3b6ea5"
ACCENT = "#c0504d"
CHART_COLOURS = (
    "#0072b2", "#b84a00", "#00795a", "#a64d79", "#8a6500", "#2f73b8", "#6f6400", "#6b6b6b",
    "#a0a0a0",
)  # fmt: skip
"""Colours of charts, which templates/style.css replaces by lighter colours in dark mode.

The colours are dark variants of the palette of Okabe and Ito, which colour-blind readers can
distinguish.
"""
PERCENTAGES = ("bleu", "chrf", "exact", "macro_f1", "accuracy")
"""Names of the metrics whose values are between 0 and 100."""
VALUES = "values:"
"""Prefix of the matplotlib `gid` of a line whose markers show texts on hover."""
SHADE = (0.12, 0.38, 0.63)
"""RGB colour behind highlighted words, from 0 to 1; the opacity grows with the importance."""
LONGEST = 28
"""Maximum number of characters of a word in the labels of a heat map."""
CELL = 0.24
"""Width and height of a cell of a heat map, in inches."""
SCALE = 2.2
"""Maximum height of the colour bar of heat maps, in inches."""
BAR_WIDTH = 0.8
"""Width in inches of the colour bar of attention weights, with its labels."""
MIN_CELL = 0.16
"""Minimum width of a cell in inches if heat maps are side by side in a narrow image."""
MIN_TITLE = 24
"""Minimum number of characters per line in the title of a heat map, even if the heat map is
narrower.
"""
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
    figure, row = row_of_axes(2, width=9, height=3.9)
    losses, scores = row
    losses.plot(
        *_curve(train, "loss"),
        color=LINE,
        lw=1,
        marker="." if len(train) < 20 else "",
        label="training, with label smoothing and dropout",
    )
    losses.plot(*_curve(validation, "loss"), "o-", color=ACCENT, ms=3, label="validation")
    losses.set(xlabel="epoch", ylabel=f"loss (nats per {unit.removesuffix('s')})")
    # Below the axes, the legend covers no curve.
    below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "frameon": False}
    losses.legend(**below)
    scores.plot(*_curve(validation, shown_metric), "o-", color=ACCENT, ms=3, label="validation")
    best = [record for record in validation if record.get("best")][-1:]
    label = f"best checkpoint: {best[0][shown_metric]:.4g}" if best else ""
    scores.plot(*_curve(best, shown_metric), "*", color=INK, ms=11, label=label)
    scores.set(xlabel="epoch", ylabel=f"validation {TITLES.get(shown_metric, shown_metric)}")
    scores.legend(**below, ncols=2)
    if shown_metric in PERCENTAGES:
        scores.set_ylim(bottom=0)
        keep_inside(scores, "y", 0.0, 100.0)
    for axes in row:
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


def values_of(texts: Iterable[str]) -> str:
    """Returns the matplotlib `gid` of a line whose markers show the given texts on hover in an HTML
    page.
    """
    return VALUES + "\n".join(texts)


def keep_inside(axes: Any, axis: str, low: float, high: float) -> None:
    """Limits the x or y axis of a chart to the range of possible values."""
    left, right = axes.get_xlim() if axis == "x" else axes.get_ylim()
    axes.set(**{f"{axis}lim": (max(low, left), min(high, right))})


def _curve(records: Sequence[dict[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """Returns two lists from the given records: epochs, and values of the metric `key`."""
    return [record["epoch"] for record in records], [record[key] for record in records]


@dataclass(frozen=True)
class Panel:
    """Data of a heat map of attention weights.

    source, target: words of both sides
    weights: [target, source] attention weights
    title: text above the heat map
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: np.ndarray
    title: str = ""


def heat_maps(panels: Sequence[Panel], columns: int, image_width: float | None = None) -> Figure:
    """Returns a figure with heat maps.

    Columns are source words, rows are target words, and darker cells have larger weights. All cells
    have the same size.

    panels: heat maps to draw
    columns: maximum number of heat maps side by side
    image_width: width of the figure in inches; None fits the contents. In a narrow image, fewer
        heat maps are side by side
    """
    widest = max(len(panel.source) for panel in panels)
    targets = [word for panel in panels for word in panel.target]
    beside = 0.5 + _label_inches(targets)  # width of the labels beside a heat map
    columns = min(columns, len(panels))
    cell = CELL
    if image_width is not None:
        maps_width = image_width - BAR_WIDTH
        columns = min(columns, max(1, int(maps_width / (beside + MIN_CELL * widest))))
        cell = max(0.05, (maps_width / columns - beside) / widest)
    width = beside + cell * widest
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    sources = [word for panel in panels for word in panel.source]
    tallest = [max(len(panel.target) for panel in row) for row in rows]
    lines = max(_wrapped_title(panel, cell * widest).count("\n") for panel in panels)
    labels = 0.85 + 0.13 * lines + _label_inches(sources) * math.sin(math.radians(60))
    height = labels * len(rows) + cell * sum(tallest)
    with fonts_for([*sources, *targets, *(panel.title for panel in panels)]):
        figure = Figure(figsize=(columns * width + BAR_WIDTH, height), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=tallest)
        for row, line, size in zip(rows, grid, tallest, strict=True):
            for panel, axes in zip(row, line, strict=False):
                image = _draw_heat_map(axes, panel, (size, widest))
                title = _wrapped_title(panel, cell * widest)
                axes.set_title(title, loc="left", fontsize=8, weight="bold")
            for axes in line[len(row) :]:
                axes.set_visible(False)
        shrink = min(0.5, SCALE / height)
        bar = figure.colorbar(image, ax=grid, shrink=shrink, aspect=20, pad=0.02, anchor=(0, 1))
        bar.set_label("attention weight", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return figure


def _label_inches(words: Iterable[str]) -> float:
    return 0.08 * max(len(_short(word)) for word in words)


def _wrapped_title(panel: Panel, inches: float) -> str:
    """Returns the title of a heat map in lines that are as wide as the heat map and its labels.

    inches: width of the heat map without labels
    """
    # about 13 characters per inch
    characters = max(MIN_TITLE, round(13 * (inches + _label_inches(panel.target))))
    lines = literal(panel.title).splitlines()
    return "\n".join(textwrap.fill(line, characters) for line in lines)


def _draw_heat_map(axes: Any, panel: Panel, size: tuple[int, int]) -> Any:
    """Draws a heat map and returns its matplotlib mesh, which the colour bar needs.

    size: rows and columns of the axes, in cells; the heat map is in the upper left corner
    """
    source = [_short(word) for word in panel.source]
    target = [_short(word) for word in panel.target]
    style: Any = {
        "cmap": "Blues",
        "vmin": 0,
        "vmax": 1,
        "edgecolors": "#d8d8d8",
        "lw": 0.5,
        "clip_on": False,
    }
    mesh = axes.pcolormesh(panel.weights, **style)
    axes.xaxis.tick_top()
    axes.set(xlim=(0, size[1]), ylim=(size[0], 0), aspect="equal", anchor="NW")
    labels: Any = {"rotation": 60, "ha": "left", "rotation_mode": "anchor", "fontsize": 8}
    axes.set_xticks(np.arange(len(source)) + 0.5, source, **labels)
    axes.set_yticks(np.arange(len(target)) + 0.5, target, fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("source", fontsize=8, color="#595959", loc="left")
    axes.set_ylabel("translation", fontsize=8, color="#595959", loc="top")
    return mesh


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
    """Text that is drawn with its important words highlighted.

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
    for number, colour in enumerate(CHART_COLOURS):
        text = text.replace(colour, f"var(--chart{number}, {colour})")
    # Each marker of a line is a <use> element.
    pieces = re.split(
        rf'<g id="{VALUES}([^"]*)">', text.replace("<text ", '<text fill="currentColor" ')
    )
    lines = map(_with_values, pieces[1::2], pieces[2::2])
    return "".join([pieces[0], *lines])


def _with_values(values: str, text: str) -> str:
    """Returns SVG text in which the first <use> elements have the attribute data-value, a text on
    hover.

    values: escaped texts, one per line
    """
    first, *others = text.split("<use ")
    attributes = [f'data-value="{value}" ' for value in values.splitlines()]
    elements = map("<use {}{}".format, chain(attributes, repeat("")), others)
    return "".join(["<g>", first, *elements])


def save(figure: Figure, path: Path, style: FigureStyle = USUAL) -> None:
    """Writes a figure to a .png, .pdf or .svg file.

    style: width and font size
    """
    if style.width is not None:
        ratio = figure.get_figheight() / figure.get_figwidth()
        figure.set_size_inches(style.width, style.width * ratio)
    if style.font_size is not None:
        for text in figure.findobj(Text):
            text.set_fontsize(style.font_size)
    # Text stays text in .pdf files, with embedded TrueType fonts, and in .svg files.
    settings: Any = {"pdf.fonttype": 42, "svg.fonttype": "none"}
    with _no_glyph_warnings(), matplotlib.rc_context(settings):
        figure.draw_without_rendering()  # the second layout has space for titles of several lines
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

    Logs a single warning for all scripts that no installed font contains.
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
