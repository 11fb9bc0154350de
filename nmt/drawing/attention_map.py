"""Attention maps as a self-contained HTML page, an image, JSON, or notebook output."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from nmt.drawing import FIGURES, USUAL, FigureStyle
from nmt.drawing.pages import page, render
from nmt.drawing.picture_attention import (
    PictureRow,
    attention_overlay,
    data_url,
    picture_label,
    source_picture,
)
from nmt.foundation.errors import UserError
from nmt.foundation.progress import tracked, waiting
from nmt.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = 8
"""Maximum number of sentences in an image file; .html and .json files contain all sentences."""
LONGEST = 60
"""Maximum number of words per sentence in .html and image files; .json files contain all words."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class AttentionMap:
    """Attention weights of a sentence pair, from target words to source words or image cells.

    source, target: words or subwords
    weights: attention weights [target, source], by name of the model or head; rows sum to 1 without
        an image
    ends: whether `</s>` is the last word on both sides, source and target
    picture: file name of the source image; "" without an image
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
    def pictures(self) -> list[PictureRow]:
        """Attention weights of each model over the grid cells of the source image, with the
        image."""
        return [
            PictureRow(
                name=name,
                image=source_picture(self.picture, weights.shape[1:]),
                target=self.target,
                weights=weights,
                title=self.title_of(name),
            )
            for name, weights in self.places.items()
        ]

    @property
    def total(self) -> np.ndarray:
        """Mean attention weights over models and heads, [target, source].

        Raises UserError if there are no weights of words, because the source is an image.
        """
        if not self.weights:
            raise UserError("total: the source has no words; `places` has the weights of the image")
        return np.mean(list(self.weights.values()), axis=0)

    @property
    def shortened(self) -> AttentionMap:
        """Attention map with at most LONGEST source words and LONGEST target words.

        The last word "…" of a longer sentence stands for the remaining words: it has the sum of the
        weights of the source words, and the mean of the values of the target words.
        """
        return replace(
            self,
            source=_first_words(self.source),
            target=_first_words(self.target),
            weights={
                name: _first(_first(weights, 1, np.sum), 0, np.mean)
                for name, weights in self.weights.items()
            },
            places={name: _first(w, 0, np.mean) for name, w in self.places.items()},
            probabilities={name: _first(p, 0, np.mean) for name, p in self.probabilities.items()},
        )

    def plot(self) -> Figure:
        """Returns a matplotlib figure with one heat map per model or head.

        The size of the figure fits the words. `figure.set_size_inches` changes the size. Raises
        UserError if the decoder has no attention.
        """
        if not (self.weights or self.places):
            raise UserError("plot: the decoder has no attention")
        return _figure([self.shortened])

    def _repr_html_(self) -> str:
        return render("fragment", section=_section(self))

    def __repr__(self) -> str:
        source = " ".join(self.source)
        target = " ".join(self.target)
        names = "".join(f", {name}" for name in self.weights if name)
        return f"AttentionMap({source!r} → {target!r}{names})"


def _first_words(words: list[str]) -> list[str]:
    return words if len(words) <= LONGEST else [*words[: LONGEST - 1], "…"]


def _first(values: np.ndarray, axis: int, merge: Callable[..., np.ndarray]) -> np.ndarray:
    """Returns an array with at most LONGEST rows (axis 0) or columns (axis 1).

    merge: np.sum or np.mean, which merges the remaining rows or columns
    """
    if values.shape[axis] <= LONGEST:
        return values
    first, rest = np.split(values, [LONGEST - 1], axis)
    return np.concatenate([first, merge(rest, axis, keepdims=True)], axis)


def write_map(maps: Sequence[AttentionMap], path: Path, style: FigureStyle = USUAL) -> None:
    """Writes attention maps to a file. Empty sentences are left out.

    maps: one attention map per sentence
    path: output file; .png, .pdf or .svg writes an image, .json writes all values, and any other
        extension writes an HTML page
    style: width and font size of an image
    """
    maps = [
        m
        for m in maps
        if len(m.target) > m.ends and (m.places or (m.weights and len(m.source) > m.ends))
    ]
    if not maps:
        log.warning("%s: not written, because all lines are empty", path)
    elif path.suffix == ".json":
        text = json.dumps([_as_json(m) for m in maps], ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode())
    elif path.suffix in FIGURES:
        if len(maps) > PICTURES:
            log.warning(
                "%s: shows only the first %s of %s sentences; write .html or .json to get all",
                path,
                PICTURES,
                f"{len(maps):,}",
            )
        if any(m.places for m in maps) and any(m.weights for m in maps):
            log.warning(
                "%s: shows only the attention to images; write .html or .json to get the attention "
                "to words, too",
                path,
            )
        with waiting(f"drawing {path.name}"):
            from nmt.drawing.plots import save

            save(_figure([m.shortened for m in maps[:PICTURES]], style.width), path, style)
    else:
        drawn = tracked(maps, f"drawing {path.name}", "sentences")
        sections = [_section(attention_map) for attention_map in drawn]
        note = render(
            "attention_note",
            places=any(m.places for m in maps),
            weights=any(m.weights for m in maps),
        )
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

    width: width of a figure of heat maps in inches; None to fit the contents
    """
    from nmt.drawing.attention_figure import HeatMap, heat_map_figure, picture_figure

    if any(m.places for m in maps):
        return picture_figure([row for m in maps for row in m.pictures])
    pairs = [
        [HeatMap(m.title_of(name), m.source, m.target, w) for name, w in m.weights.items()]
        for m in maps
    ]
    return heat_map_figure(pairs, width)


def _section(attention_map: AttentionMap) -> Markup:
    """Returns the HTML section for a sentence pair: both texts, and a table or images per model."""
    end = -1 if attention_map.ends else None
    sides = (attention_map.source[:end], attention_map.target[:end])
    drawn = attention_map.shortened
    return render(
        "attention_map",
        map=drawn,
        texts=[" ".join(side) for side in sides],
        pictures=drawn.pictures,
        data_url=data_url,
        overlay=attention_overlay,
        label=picture_label,
    )
