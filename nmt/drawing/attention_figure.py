"""Matplotlib figures of attention: heat maps over source words, and overlays on source images."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.drawing import INK, literal, short
from nmt.drawing.picture_attention import PictureRow, attention_overlay
from nmt.drawing.plots import Figure, fonts_for

CELL = 0.24
"""Width and height of a cell of a heat map, in inches."""
SCALE = 2.2
"""Maximum height of the colour bar of heat maps, in inches."""
BAR_WIDTH = 0.8
"""Width in inches of the colour bar of attention weights, with its labels."""
MIN_CELL = 0.16
"""Minimum width of a cell in inches if heat maps are side by side in a narrow image."""
PICTURE_CHARACTERS = 18
"""Maximum number of characters per line in the title above an image."""
MIN_TITLE = 24
"""Minimum number of characters per line in the title of a heat map, even if the heat map is
narrower.
"""


@dataclass(frozen=True)
class HeatMap:
    """Attention weights of a model or head for a sentence pair.

    title: text above the heat map; "" for none
    source, target: words or subwords
    weights: attention weights [target, source]
    """

    title: str
    source: Sequence[str]
    target: Sequence[str]
    weights: np.ndarray


def heat_map_figure(pairs: Sequence[Sequence[HeatMap]], image_width: float | None) -> Figure:
    """Returns a figure with the heat maps of sentence pairs.

    Columns are source words, rows are target words, and darker cells have larger weights. All cells
    have the same size. The heat maps of a sentence pair are placed side by side.

    pairs: heat maps of each sentence pair, one for each model or head
    image_width: width of the figure in inches; None to fit the contents. In a narrow figure, fewer
        heat maps are placed side by side
    """
    heat_maps = [heat_map for pair in pairs for heat_map in pair]
    sources = [word for heat_map in heat_maps for word in heat_map.source]
    targets = [word for heat_map in heat_maps for word in heat_map.target]
    widest = max(len(heat_map.source) for heat_map in heat_maps)
    beside = 0.5 + _label_inches(targets)  # width of the labels beside a heat map
    columns = max(map(len, pairs))
    cell = CELL
    if image_width is not None:
        maps_width = image_width - BAR_WIDTH
        columns = min(columns, max(1, int(maps_width / (beside + MIN_CELL * widest))))
        cell = max(0.05, (maps_width / columns - beside) / widest)
    width = beside + cell * widest
    rows = [heat_maps[i : i + columns] for i in range(0, len(heat_maps), columns)]
    tallest = [max(len(heat_map.target) for heat_map in row) for row in rows]
    titles = [_wrapped_title(heat_map, cell * widest) for heat_map in heat_maps]
    lines = max(title.count("\n") for title in titles)
    # Labels of source words above a heat map are rotated by 60 degrees.
    labels = 0.85 + 0.13 * lines + _label_inches(sources) * math.sin(math.radians(60))
    height = labels * len(rows) + cell * sum(tallest)
    with fonts_for([*sources, *targets, *titles]):
        figure = Figure(figsize=(columns * width + BAR_WIDTH, height), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=tallest)
        for number, (heat_map, title) in enumerate(zip(heat_maps, titles, strict=True)):
            size = (tallest[number // columns], widest)
            image = _draw_heat_map(grid.flat[number], heat_map, title, size)
        # The last row may be incomplete.
        for axes in grid.flat[len(heat_maps) :]:
            axes.set_visible(False)
        shrink = min(0.5, SCALE / height)
        bar = figure.colorbar(image, ax=grid, shrink=shrink, aspect=20, pad=0.02, anchor=(0, 1))
        bar.set_label("attention weight", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return figure


def _label_inches(words: Iterable[str]) -> float:
    return 0.08 * max(len(short(word)) for word in words)


def _wrapped_title(heat_map: HeatMap, inches: float) -> str:
    """Returns the title of a heat map, wrapped to the width of the heat map and its labels.

    heat_map: heat map with the title
    inches: width of the heat map without labels
    """
    # about 13 characters per inch
    characters = max(MIN_TITLE, round(13 * (inches + _label_inches(heat_map.target))))
    return _wrapped(heat_map.title, characters)


def _wrapped(text: str, characters: int) -> str:
    """Returns a text whose lines have at most the given number of characters."""
    return "\n".join(literal(textwrap.fill(line, characters)) for line in text.splitlines())


def _draw_heat_map(axes: Any, heat_map: HeatMap, title: str, size: tuple[int, int]) -> Any:
    """Draws a heat map and returns its matplotlib mesh, which the colour bar needs.

    title: text above the heat map
    size: rows and columns of the axes, in cells; the heat map is in the upper left corner
    """
    source = [short(word) for word in heat_map.source]
    target = [short(word) for word in heat_map.target]
    mesh = axes.pcolormesh(
        heat_map.weights,
        cmap="Blues",
        vmin=0,
        vmax=1,
        edgecolors="#d8d8d8",
        lw=0.5,
        clip_on=False,
    )
    axes.xaxis.tick_top()
    axes.set(xlim=(0, size[1]), ylim=(size[0], 0), aspect="equal", anchor="NW")
    axes.set_xticks(
        np.arange(len(source)) + 0.5,
        source,
        rotation=60,
        ha="left",
        rotation_mode="anchor",
        fontsize=8,
    )
    axes.set_yticks(np.arange(len(target)) + 0.5, target, fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("source", fontsize=8, color="#595959", loc="left")
    axes.set_title(title, loc="left", fontsize=8, weight="bold")
    axes.set_ylabel("translation", fontsize=8, color="#595959", loc="top")
    return mesh


def picture_figure(rows: Sequence[PictureRow]) -> Figure:
    """Returns a figure with rows of images. A row shows the image alone, then the image overlaid
    with the attention weights of each target word.

    The drawing follows figure 3 of Xu et al. (2015).
    """
    columns = max(len(row.target) for row in rows) + 1
    titles = [_wrapped(row.title, PICTURE_CHARACTERS) for row in rows]
    # height in inches, from the aspect ratio
    heights = [1.1 * row.image.shape[0] / row.image.shape[1] for row in rows]
    lines = sum(title.count("\n") for title in titles)
    with fonts_for([*titles, *(word for row in rows for word in row.target)]):
        size = (1.18 * columns, sum(heights) + 0.42 * len(rows) + 0.13 * lines)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for row, title, line in zip(rows, titles, grid, strict=True):
            _draw_picture(line[0], row.image, title, None)
            for axes, word, weights in zip(line[1:], row.target, row.weights, strict=False):
                _draw_picture(axes, row.image, short(word), weights)
            for axes in line[len(row.target) + 1 :]:
                axes.set_visible(False)
    return figure


def _draw_picture(axes: Any, image: np.ndarray, title: str, weights: np.ndarray | None) -> None:
    """Draws an image with its title, and attention weights [rows, columns] over it."""
    # The image and its attention weights cover the same area.
    extent = (0, image.shape[1], image.shape[0], 0)
    axes.imshow(image, interpolation="nearest", extent=extent)
    if weights is not None:
        axes.imshow(attention_overlay(weights), interpolation="bicubic", extent=extent)
    axes.set_title(title, fontsize=8, color=INK)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color="#d0d0d0", lw=0.6)
