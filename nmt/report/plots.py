"""Pictures: learning curves and attention maps, by matplotlib (imported only here)."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from nmt.inference.text_classifier import Classified
from nmt.inference.word_alignment import AttentionMap

log = logging.getLogger(__name__)
INK, LINE, ACCENT = "#222222", "#3b6ea5", "#c0504d"


def learning_curve(records: Sequence[dict[str, Any]], metric: str, path: Path, title: str, unit: str) -> None:
    """Training and validation loss (in nats per `unit`) beside the validation metric, against epochs."""
    train = [r for r in records if r["kind"] == "train"]
    validation = [r for r in records if r["kind"] == "validation"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
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
        [r["epoch"] for r in validation], [r["loss"] for r in validation], "o-", color=ACCENT, ms=3, label="validation"
    )
    left.set(xlabel="epoch", ylabel=f"nats per {unit.removesuffix('s')}")
    left.legend(frameon=False)
    figures = [name for name in validation[0] if name not in ("kind", "update", "epoch", "best", "loss")]
    shown = metric if metric in figures else figures[0]
    right.plot([r["epoch"] for r in validation], [r[shown] for r in validation], "o-", color=ACCENT, ms=3)
    right.set(xlabel="epoch", ylabel=f"validation {shown}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.2)
        axes.set_xlim(left=0)
    figure.suptitle(literal(title), fontsize=10, color=INK)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _one_warning(draw: Callable[[Any, Path], None]) -> Callable[[Any, Path], None]:
    """One message instead of matplotlib's warnings about each character that is missing from its font."""

    @functools.wraps(draw)
    def drawn(things: Any, path: Path) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            draw(things, path)
        missing = [warning for warning in caught if "missing from font" in str(warning.message)]
        if missing:
            log.warning("%s: some characters are not in the font and drawn as boxes; .html and .json have all", path)
        for warning in caught:
            if warning not in missing:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    return drawn


@_one_warning
def draw_maps(maps: Sequence[AttentionMap], path: Path) -> None:
    """Heat maps: source words are columns, translated words are rows, dark means attended. With several models or
    heads, each sentence has its own row of maps; otherwise two sentences share a row."""
    panels = [(each, name) for each in maps for name in each.weights]
    columns = max(len(each.weights) for each in maps)
    columns = min(2, len(panels)) if columns == 1 else columns
    rows = (len(panels) + columns - 1) // columns
    widths, heights = max(len(each.source) for each in maps), max(len(each.target) for each in maps)
    left, top = (0.08 * max(len(word) for each in maps for word in side(each)) for side in (_of_target, _of_source))
    size = (columns * (1.2 + left + 0.27 * widths), rows * (1.0 + top + 0.27 * heights))
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for (each, name), ax in zip(panels, axes.flat, strict=False):
        ax.imshow(each.weights[name], cmap="Blues", vmin=0, vmax=1, aspect="equal")
        ax.set_xticks(range(len(each.source)), _of_source(each), rotation=60, ha="left", fontsize=8)
        ax.set_yticks(range(len(each.target)), _of_target(each), fontsize=8)
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.set_xticks([x - 0.5 for x in range(1, len(each.source))], minor=True)
        ax.set_yticks([y - 0.5 for y in range(1, len(each.target))], minor=True)
        ax.grid(which="minor", color="#e8e8e8", lw=0.5)
        ax.tick_params(which="minor", length=0)
        ax.set_xlabel(literal(name), fontsize=8, color="#666666")
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


@_one_warning
def marked_texts(answers: Sequence[Classified], path: Path) -> None:
    """Texts under their labels, each word on a background as dark as its share of the attention."""
    width = 9.0
    figure = plt.figure(figsize=(width, 1.0))
    renderer, inch, line = figure.canvas.get_renderer(), figure.dpi, 0.27  # type: ignore[attr-defined]
    placed: list[tuple[float, float, str, float | None]] = []  # x, y from above in inches, text, darkness
    y = 0.3
    for answer in answers:
        likely = max(answer.probabilities.values())
        placed.append((0.2, y, f"{', '.join(answer.labels) or 'no label'}  ({likely:.2f})", None))
        x, y = 0.2, y + line
        most = max(answer.importances) if answer.importances is not None else 1.0
        for word, share in zip(
            answer.words, answer.importances if answer.importances is not None else (), strict=False
        ):
            size = figure.text(0, 0, literal(word), fontsize=9).get_window_extent(renderer).width / inch
            if x + size > width - 0.2 and x > 0.2:
                x, y = 0.2, y + line
            placed.append((x, y, word, float(share / most)))
            x += size + 0.09
        y += 1.6 * line
    plt.close(figure)
    figure = plt.figure(figsize=(width, y))
    for x, down, text, dark in placed:
        ground = (
            None if dark is None else {"facecolor": (0.12, 0.38, 0.63, 0.7 * dark), "edgecolor": "none", "pad": 1.5}
        )
        weight = "bold" if dark is None else "normal"
        figure.text(
            x / width, 1 - down / y, literal(text), fontsize=9, weight=weight, color=INK, va="baseline", bbox=ground
        )
    figure.savefig(path, dpi=130)
    plt.close(figure)


LONGEST = 28
"""Characters shown of a word beside a map."""


def _of_source(each: AttentionMap) -> list[str]:
    return [_short(word) for word in each.source]


def _of_target(each: AttentionMap) -> list[str]:
    return [_short(word) for word in each.target]


def _short(word: str) -> str:
    return literal(word if len(word) <= LONGEST else word[: LONGEST - 1] + "…")


def literal(text: str) -> str:
    """Text with $ escaped, so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")
