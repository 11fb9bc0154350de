"""Matplotlib: learning curves, figures in HTML pages and files, fonts.

Only this module imports matplotlib. The module does not use pyplot, so it changes no global state
of a notebook or of another program.
"""

import functools
import io
import logging
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from nmt.drawing import INK, USUAL, FigureStyle, literal
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice
from nmt.metric import TITLES
from nmt.storage.files import write_atomically

try:
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise UserError(advice("matplotlib")) from None

log = logging.getLogger(__name__)
# `fonts_for` also reads fonts without a normal weight, of which matplotlib warns.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
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
"""Prefix of the matplotlib `gid` of a line whose markers show a text on hover."""


def learning_curve(
    records: Sequence[dict[str, Any]], metric: str, path: Path, title: str, unit: str
) -> None:
    """Draws the training and validation loss and a validation metric against epochs.

    records: lines of metrics.jsonl
    metric: validation metric to draw; if the records lack it, the first metric that they have
    path: output file
    title: title of the figure
    unit: plural noun of the items over which the loss is averaged, such as `tokens`; the axis shows
        nats per token
    """
    train = [record for record in records if record["kind"] == "train"]
    validation = [record for record in records if record["kind"] == "validation"]
    metrics = validation[0].keys() - {"kind", "update", "epoch", "best", "loss"}
    shown_metric = metric if metric in metrics else next(k for k in validation[0] if k in metrics)
    figure, (losses, scores) = row_of_axes(2, width=9, height=3.9)
    losses.plot(
        *_curve(train, "loss"),
        color=LINE,
        lw=1,
        marker="." if len(train) < 20 else "",
        label="training objective, with dropout",
    )
    losses.plot(*_curve(validation, "loss"), "o-", color=ACCENT, ms=3, label="validation")
    losses.set(xlabel="epoch", ylabel=f"loss (nats per {unit.removesuffix('s')})")
    # Below the axes, the legend covers no curve.
    below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "frameon": False}
    losses.legend(**below)
    scores.plot(*_curve(validation, shown_metric), "o-", color=ACCENT, ms=3, label="validation")
    best = [record for record in validation if record.get("best")][-1:]
    label = f"best checkpoint: {best[0][shown_metric]:.4g}" if best else ""
    # The star of 100 % would be cut off at the axis.
    scores.plot(*_curve(best, shown_metric), "*", color=INK, ms=11, label=label, clip_on=False)
    scores.set(xlabel="epoch", ylabel=f"validation {TITLES.get(shown_metric, shown_metric)}")
    scores.legend(**below, ncols=2)
    if shown_metric in PERCENTAGES:
        scores.set_ylim(bottom=0)
        keep_inside(scores, "y", shown_metric)
    for axes in (losses, scores):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(left=0)
    figure.suptitle(literal(title), fontsize=10, color=INK)
    figure.savefig(path, dpi=150)


def row_of_axes(
    count: int, width: float, height: float, stacked: bool = False
) -> tuple[Figure, Sequence[Any]]:
    """Returns a figure with axes side by side, or one below the other if `stacked` is true.

    width, height: size of the figure in inches
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    rows, columns = (count, 1) if stacked else (1, count)
    row = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in row:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    return figure, row


def values_of(texts: Iterable[str]) -> str:
    """Returns the matplotlib `gid` of a line whose markers show the given texts on hover in an HTML
    page.
    """
    return VALUES + "\n".join(texts)


def keep_inside(axes: Any, axis: str, metric: str = "") -> None:
    """Limits the x or y axis of a chart to the range of its quantity: 0 to 100 for percentages,
    otherwise 0 or more, unless a value is negative.

    metric: name of the metric on the axis; "" for other quantities
    """
    left, right = axes.get_xlim() if axis == "x" else axes.get_ylim()
    least = axes.dataLim.x0 if axis == "x" else axes.dataLim.y0
    low = 0.0 if least >= 0 else -math.inf
    high = 100.0 if metric in PERCENTAGES else math.inf
    axes.set(**{f"{axis}lim": (max(low, left), min(high, right))})


def _curve(records: Sequence[dict[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """Returns two lists from the given records: epochs, and values of the metric `key`."""
    return [record["epoch"] for record in records], [record[key] for record in records]


def svg(figure: Figure) -> str:
    """Returns a figure as SVG for an HTML page, without background, in the colours of the page."""
    file = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "nmt", "font.size": 11}
    # Transparent, so that the page's background is visible.
    options: Any = {"format": "svg", "transparent": True, "metadata": {"Date": None}}
    with (
        warnings.catch_warnings(action="ignore", category=UserWarning),
        matplotlib.rc_context(settings),
    ):
        figure.savefig(file, **options)
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
    """Returns SVG source with an attribute `data-value` in the first <use> elements. The page shows
    the attribute on hover.

    values: values of the attribute, one per line, escaped for XML
    """
    first, *others = text.split("<use ")
    attributes = [f'data-value="{value}" ' for value in values.splitlines()]
    elements = map("<use {}{}".format, chain(attributes, repeat("")), others)
    return "".join(["<g>", first, *elements])


def save(figure: Figure, path: Path, style: FigureStyle = USUAL) -> None:
    """Writes a figure to a .png, .pdf or .svg file.

    style: width and font size

    Raises UserError if the file cannot be written.
    """
    if style.width is not None:
        ratio = figure.get_figheight() / figure.get_figwidth()
        figure.set_size_inches(style.width, style.width * ratio)
    if style.font_size is not None:
        for text in figure.findobj(Text):
            text.set_fontsize(style.font_size)
    # Text stays text in .pdf files, with embedded TrueType fonts, and in .svg files.
    settings: Any = {"pdf.fonttype": 42, "svg.fonttype": "none"}
    with (
        warnings.catch_warnings(action="ignore", category=UserWarning),
        matplotlib.rc_context(settings),
    ):
        figure.draw_without_rendering()  # the second layout has space for titles of several lines
        image = io.BytesIO()
        figure.savefig(image, format=path.suffix[1:], dpi=130)
    write_atomically(path, image.getvalue())


def fonts_for(words: Iterable[str]) -> Any:
    """Returns a context manager that adds fallback fonts for characters missing in the default
    font.

    Logs one warning for all characters that no installed font contains.
    """
    characters = {c for c in "".join(words) if unicodedata.category(c)[0] not in "CZ"}
    missing = characters - font_characters(font_manager.findfont(font_manager.FontProperties()))
    # Matplotlib uses the first family that has the character.
    families = list(matplotlib.rcParams["font.family"])
    for family in dict.fromkeys(font.name for font in font_manager.fontManager.ttflist):
        # matplotlib's "Last Resort" font draws a box for every character.
        if not missing or family.startswith("Last Resort"):
            continue
        # matplotlib draws with only one of several files of a family. The family is given as a
        # list, because matplotlib parses a string as a font pattern.
        file = font_manager.findfont(font_manager.FontProperties(family=[family]))
        if missing & font_characters(file):
            families.append(family)  # fallback fonts follow the usual font
            missing -= font_characters(file)
    if missing:
        scripts = {
            "symbols"
            if unicodedata.category(c)[0] == "S"
            else unicodedata.name(c, "UNKNOWN").split()[0].title()
            for c in missing
        }
        warn_of_missing(
            " ".join(sorted(missing)[:8]), ", ".join(sorted(scripts)).replace("Cjk", "CJK")
        )
    return matplotlib.rc_context({"font.family": families})


@functools.cache  # a training draws the same sentence after every validation
def warn_of_missing(characters: str, scripts: str) -> None:
    """Logs a warning for characters that no installed font contains, once for each set of
    characters in a process."""
    log.warning(
        "images: no installed font has the characters %s (%s), which are drawn as boxes. "
        "Install a font such as Noto Sans for these scripts, or write .html or .json",
        characters,
        scripts,
    )


@functools.cache
def font_characters(file: str) -> frozenset[str]:
    """Returns the characters of a font, or an empty set if the file cannot be read."""
    try:
        return frozenset(map(chr, font_manager.get_font(file).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
