"""Attention maps as a self-contained HTML page, an image, JSON, or notebook output."""

from __future__ import annotations

import base64
import io
import json
import logging
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from nmt.data.pictures import thumbnail
from nmt.drawing import FIGURES, INK, USUAL, FigureStyle, literal, short
from nmt.drawing.pages import page, render
from nmt.foundation.progress import Progress, waiting
from nmt.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = 8
"""Maximum number of sentences in an image file; .html and .json files contain all sentences."""
LONGEST = 60
"""Maximum number of words per sentence in .html and image files; .json files contain all words."""
WIDEST = 320
"""Maximum length of the longer side of a drawn image in pixels; larger images are scaled down."""
WHITE = np.array([255, 255, 255, 200])
"""RGBA colour of grid cells without attention, each component from 0 to 255."""
WARM = np.array([240, 115, 10, 140])
"""RGBA colour of the grid cell with the most attention, each component from 0 to 255."""
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

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of a sentence pair, from target words to source words or image cells.

    source, target: words or subwords
    weights: attention weights [target, source], by name of the model or head; rows sum to 1 without
        an image
    ends: whether `</s>` is the last word of the source and of the target
    picture: file name of the source image; "" for no image
    places: attention weights [target, rows, columns] of the image's grid cells, by model name; for
        each target word, the weights of source words and grid cells sum to 1
    title: text above an image of a single map ("" for none)
    probabilities: probability of each target word, [target], by name as in `weights`
    languages: codes of the source and target language ("" if unknown)
    author: name of the model that produced the translation; all other models were forced to produce
        the same translation
    """

    source: list[str]
    target: list[str]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    ends: bool = True
    picture: str = ""
    places: dict[str, np.ndarray] = field(default_factory=dict)
    title: str = ""
    probabilities: dict[str, np.ndarray] = field(default_factory=dict)
    languages: tuple[str, str] = ("", "")
    author: str = ""

    @property
    def lang(self) -> list[str]:
        """Attributes `lang` of the source and target text in HTML; "" for an unknown language."""
        return [code if re.fullmatch("[a-z]{2}", code) else "" for code in self.languages]

    def is_forced(self, name: str) -> bool:
        """Returns whether a model was forced to produce another model's translation."""
        is_author = name == self.author or name.startswith(f"{self.author}, head ")
        return bool(self.author) and not is_author

    def title_of(self, name: str) -> str:
        """Returns the title of the drawing for a model or head."""
        return f"{name}\n(forced)" if self.is_forced(name) else name or self.title

    @property
    def total(self) -> np.ndarray:
        """Mean attention weights over models and heads, [target, source]."""
        return np.mean(list(self.weights.values()), axis=0)

    @property
    def shortened(self) -> AttentionMap:
        """Attention map cut to at most LONGEST source words and LONGEST target words."""
        return replace(
            self,
            source=_first_words(self.source),
            target=_first_words(self.target),
            weights={name: w[:LONGEST, :LONGEST] for name, w in self.weights.items()},
            places={name: w[:LONGEST] for name, w in self.places.items()},
            probabilities={name: p[:LONGEST] for name, p in self.probabilities.items()},
        )

    def plot(self) -> Figure:
        """Returns a matplotlib figure with one heat map per model or head.

        The size of the figure fits the words. `figure.set_size_inches` changes the size.
        """
        return _figure([self.shortened])

    def _repr_html_(self) -> str:
        return render("fragment", section=_section(self.shortened))

    def __repr__(self) -> str:
        source = " ".join(self.source)
        target = " ".join(self.target)
        names = "".join(f", {name}" for name in self.weights if name)
        return f"AttentionMap({source!r} → {target!r}{names})"


def _first_words(words: list[str]) -> list[str]:
    return words if len(words) <= LONGEST else [*words[: LONGEST - 1], "…"]


def write_map(maps: Sequence[AttentionMap], path: Path, style: FigureStyle = USUAL) -> None:
    """Writes attention maps to a file. Empty sentences are left out.

    maps: one attention map per sentence
    path: output file; .png, .pdf or .svg writes an image, .json writes all values, and any other
        extension writes an HTML page
    style: width and font size of an image
    """
    maps = [m for m in maps if m.places or (m.weights and len(m.source) > m.ends)]
    if not maps:
        log.warning("%s: not written, because all lines are empty", path)
    elif path.suffix == ".json":
        text = json.dumps([_as_json(m) for m in maps], ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode())
    elif path.suffix in FIGURES:
        with waiting(f"drawing {path.name}"):
            from nmt.drawing.plots import save

            save(_figure([m.shortened for m in maps[:PICTURES]], style.width), path, style)
    else:
        sections = []
        with Progress(f"drawing {path.name}", len(maps), "sentences") as step:
            for attention_map in maps:
                sections.append(_section(attention_map.shortened))
                step()
        note = render("attention_note", places=maps[0].places)
        write_atomically(path, page("Attention weights", note, sections))


def _as_json(attention_map: AttentionMap) -> dict[str, Any]:
    record: dict[str, Any] = {
        "source": attention_map.source,
        "target": attention_map.target,
        "weights": _rounded(attention_map.weights),
    }
    if attention_map.probabilities:
        record["probabilities"] = _rounded(attention_map.probabilities)
    if attention_map.places:
        record["picture"] = attention_map.picture
        record["places"] = _rounded(attention_map.places)
    return record


def _rounded(weights: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: values.round(5).tolist() for name, values in weights.items()}


def _figure(maps: Sequence[AttentionMap], width: float | None = None) -> Figure:
    """Returns a matplotlib figure with heat maps, or with images if the source is an image.

    width: width of the figure in inches; None to fit the contents. Figures with images ignore it
    """
    return _picture_rows(maps) if maps[0].places else _heat_maps(maps, width)


def _heat_maps(maps: Sequence[AttentionMap], image_width: float | None) -> Figure:
    """Returns a figure with a heat map for each model or head of each attention map.

    Columns are source words, rows are target words, and darker cells have larger weights. All cells
    have the same size. The heat maps of a sentence pair are placed side by side.

    image_width: width of the figure in inches; None to fit the contents. In a narrow figure, fewer
        heat maps are placed side by side
    """
    from nmt.drawing import plots

    panels = [(attention_map, name) for attention_map in maps for name in attention_map.weights]
    sources = [word for attention_map in maps for word in attention_map.source]
    targets = [word for attention_map in maps for word in attention_map.target]
    widest = max(len(attention_map.source) for attention_map in maps)
    beside = 0.5 + _label_inches(targets)  # width of the labels beside a heat map
    columns = max(len(attention_map.weights) for attention_map in maps)
    cell = CELL
    if image_width is not None:
        maps_width = image_width - BAR_WIDTH
        columns = min(columns, max(1, int(maps_width / (beside + MIN_CELL * widest))))
        cell = max(0.05, (maps_width / columns - beside) / widest)
    width = beside + cell * widest
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    tallest = [max(len(attention_map.target) for attention_map, _ in row) for row in rows]
    titles = [_wrapped_title(*panel, cell * widest) for panel in panels]
    lines = max(title.count("\n") for title in titles)
    labels = 0.85 + 0.13 * lines + _label_inches(sources) * math.sin(math.radians(60))
    height = labels * len(rows) + cell * sum(tallest)
    with plots.fonts_for([*sources, *targets, *titles]):
        figure = plots.Figure(figsize=(columns * width + BAR_WIDTH, height), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=tallest)
        for row, line, size in zip(rows, grid, tallest, strict=True):
            for (attention_map, name), axes in zip(row, line, strict=False):
                image = _draw_heat_map(axes, attention_map, name, (size, widest))
                title = _wrapped_title(attention_map, name, cell * widest)
                axes.set_title(title, loc="left", fontsize=8, weight="bold")
            for axes in line[len(row) :]:
                axes.set_visible(False)
        shrink = min(0.5, SCALE / height)
        bar = figure.colorbar(image, ax=grid, shrink=shrink, aspect=20, pad=0.02, anchor=(0, 1))
        bar.set_label("attention weight", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return figure


def _label_inches(words: Iterable[str]) -> float:
    return 0.08 * max(len(short(word)) for word in words)


def _wrapped_title(attention_map: AttentionMap, name: str, inches: float) -> str:
    """Returns the title of a heat map, wrapped to the width of the heat map and its labels.

    name: name of the model or head
    inches: width of the heat map without labels
    """
    # about 13 characters per inch
    characters = max(MIN_TITLE, round(13 * (inches + _label_inches(attention_map.target))))
    lines = literal(attention_map.title_of(name)).splitlines()
    return "\n".join(textwrap.fill(line, characters) for line in lines)


def _draw_heat_map(axes: Any, attention_map: AttentionMap, name: str, size: tuple[int, int]) -> Any:
    """Draws a heat map and returns its matplotlib mesh, which the colour bar needs.

    name: name of the model or head
    size: rows and columns of the axes, in cells; the heat map is in the upper left corner
    """
    source = [short(word) for word in attention_map.source]
    target = [short(word) for word in attention_map.target]
    mesh = axes.pcolormesh(
        attention_map.weights[name],
        cmap="Blues",
        vmin=0,
        vmax=1,
        edgecolors="#d8d8d8",
        lw=0.5,
        clip_on=False,
    )
    axes.xaxis.tick_top()
    axes.set(xlim=(0, size[1]), ylim=(size[0], 0), aspect="equal", anchor="NW")
    places = np.arange(len(source)) + 0.5
    axes.set_xticks(places, source, rotation=60, ha="left", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(np.arange(len(target)) + 0.5, target, fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("source", fontsize=8, color="#595959", loc="left")
    axes.set_ylabel("translation", fontsize=8, color="#595959", loc="top")
    return mesh


def _picture_rows(maps: Sequence[AttentionMap]) -> Figure:
    """Returns a figure with one row of images for each model of each attention map. A row shows the
    image alone, then the image overlaid with the attention weights of each target word.

    The drawing follows figure 3 of Xu et al. (2015).
    """
    from nmt.drawing import plots

    rows = [(attention_map, name) for attention_map in maps for name in attention_map.places]
    images = [source_picture(m.picture, m.places[name].shape[1:]) for m, name in rows]
    columns = max(len(attention_map.target) for attention_map in maps) + 1
    # height in inches, from the aspect ratio
    heights = [1.1 * image.shape[0] / image.shape[1] for image in images]
    with plots.fonts_for(word for attention_map in maps for word in attention_map.target):
        size = (1.18 * columns, sum(heights) + 0.42 * len(rows))
        figure = plots.Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for (attention_map, name), image, line in zip(rows, images, grid, strict=True):
            _draw_picture(line[0], image, attention_map.title_of(name), None)
            words = attention_map.target
            places = attention_map.places[name]
            for axes, word, weights in zip(line[1:], words, places, strict=False):
                _draw_picture(axes, image, word, weights)
            for axes in line[len(words) + 1 :]:
                axes.set_visible(False)
    return figure


def _draw_picture(axes: Any, image: np.ndarray, title: str, weights: np.ndarray | None) -> None:
    # The image and its attention weights cover the same area.
    extent = (0, image.shape[1], image.shape[0], 0)
    axes.imshow(image, interpolation="nearest", extent=extent)
    if weights is not None:
        axes.imshow(attention_overlay(weights), interpolation="bicubic", extent=extent)
    axes.set_title(short(title), fontsize=8, color=INK)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color="#d0d0d0", lw=0.6)


def _section(attention_map: AttentionMap) -> Markup:
    """Returns the HTML section for a sentence pair: both texts, and a table or images per model."""
    end = -1 if attention_map.ends else None
    sides = (attention_map.source[:end], attention_map.target[:end])
    return render(
        "attention_map",
        map=attention_map,
        texts=[" ".join(side) for side in sides],
        pictures=_pictures(attention_map),
    )


def _pictures(attention_map: AttentionMap) -> list[dict[str, Any]]:
    """Returns the image for each model and target word, overlaid with the attention weights."""
    pictures = []
    for name, places in attention_map.places.items():
        image = source_picture(attention_map.picture, places.shape[1:])
        words = [
            {
                "text": word,
                "label": _picture_label(word, weights),
                "overlay": data_url(attention_overlay(weights)),
            }
            for word, weights in zip(attention_map.target, places, strict=False)
        ]
        pictures.append(
            {
                "name": name,
                "height": image.shape[0],
                "width": image.shape[1],
                "ground": data_url(image),
                "words": words,
            }
        )
    return pictures


def _picture_label(word: str, weights: np.ndarray) -> str:
    """Returns the label of a target word's image: the largest attention weight and its grid cell,
    and the sum of the weights if source words have a share. HTML pages show the label on hover.

    weights: attention weights [rows, columns] of the image's grid cells
    """
    # The description counts rows and columns from 1.
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    label = f"{word}: maximum {weights.max():.2f} at row {row + 1}, column {column + 1}"
    total = float(weights.sum())
    return label if total > 0.995 else f"{label}; total of the image {total:.2f}"


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


def data_url(image: np.ndarray) -> str:
    """Returns an image as a data URL, which HTML pages can embed."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
