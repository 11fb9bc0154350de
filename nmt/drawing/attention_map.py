"""Attention maps: as a self-contained HTML page, a picture, JSON, or in a notebook."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.drawing.pages import fragment, page
from nmt.drawing.picture_overlay import attention_overlay, data_url, source_picture
from nmt.foundation.progress import Progress, waiting
from nmt.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = 8
"""Sentences drawn in a .png; .html and .json hold all."""
LONGEST = 60
"""Words shown of either side of a sentence in .html and .png; .json holds all."""

log = logging.getLogger(__name__)

NOTE = (
    "Columns: the source. Rows: the translation, in the order it was written. "
    'Weight 0 <span class="legend"></span> 1; hover, tap or press Tab to see the value. '
    "&lt;/s&gt; ends the sentence. The largest weight of a row may be one word off; "
    "nmt/tutorial.ipynb, section 7, explains why."
)

NOTE_OF_PLACES = (
    "The picture once for each word, in the order of writing: warm and clear is where attention "
    "was while the word was predicted, pale is what it left out. Hover, tap or move with TAB for "
    "numbers. &lt;/s&gt; ends the sentence."
)


@dataclass(frozen=True)
class AttentionMap:
    """Attention of the words of a text to those of its source, or to places of a picture.

    source, target: words or other units
    weights: [target, source] by the name of the model or head; each row sums to 1
    ends: the last unit of both sides is `</s>`
    picture: name of the picture that the source shows
    places: [target, rows, columns] attention to the picture; with `weights`, it sums to 1
    """

    source: list[str]
    target: list[str]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    ends: bool = True
    picture: str = ""
    places: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def total(self) -> np.ndarray:
        """[target, source] mean of all weights."""
        return np.mean(list(self.weights.values()), axis=0)

    def plot(self) -> Figure:
        """Returns a matplotlib figure with a heat map for each model or head."""
        return _figure([_shortened(self)])

    def _repr_html_(self) -> str:
        return fragment(_section(_shortened(self)))

    def __repr__(self) -> str:
        source = " ".join(self.source)
        target = " ".join(self.target)
        names = "".join(f", {name}" for name in self.weights if name)
        return f"AttentionMap({source!r} → {target!r}{names})"


def write_map(maps: Sequence[AttentionMap], path: Path) -> None:
    """Writes maps; empty sentences are left out.

    maps: one for each sentence
    path: file; .png: pictures, .json: all numbers, other endings: an HTML page
    """
    maps = [m for m in maps if m.places or (m.weights and len(m.source) > m.ends)]
    if not maps:
        log.warning("%s is not written: there are only empty lines", path)
    elif path.suffix == ".json":
        text = json.dumps([_as_json(m) for m in maps], ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode())
    elif path.suffix == ".png":
        with waiting(f"drawing {path.name}"):
            from nmt.drawing.plots import save

            save(_figure([_shortened(m) for m in maps[:PICTURES]]), path)
    else:
        sections = []
        with Progress(f"drawing {path.name}", len(maps), "sentences") as step:
            for attention_map in maps:
                sections.append(_section(_shortened(attention_map)))
                step()
        note = NOTE_OF_PLACES if maps[0].places else NOTE
        write_atomically(path, page("Attention", note, "\n".join(sections)))


def _as_json(attention_map: AttentionMap) -> dict[str, Any]:
    record: dict[str, Any] = {
        "source": attention_map.source,
        "target": attention_map.target,
        "weights": _rounded(attention_map.weights),
    }
    if attention_map.places:
        record["picture"] = attention_map.picture
        record["places"] = _rounded(attention_map.places)
    return record


def _rounded(weights: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: values.round(5).tolist() for name, values in weights.items()}


def _figure(maps: Sequence[AttentionMap]) -> Figure:
    """Heat maps of several sentences, or pictures if there are any."""
    from nmt.drawing import plots

    if maps[0].places:
        rows = [
            plots.PictureRow(source_picture(m.picture), m.target, places, name)
            for m in maps
            for name, places in m.places.items()
        ]
        return plots.picture_rows(rows)
    panels = [
        plots.Panel(m.source, m.target, weights, name)
        for m in maps
        for name, weights in m.weights.items()
    ]
    # The models of a sentence stand side by side; with one model, two sentences do.
    models = max(len(m.weights) for m in maps)
    return plots.heat_maps(panels, columns=2 if models == 1 else models)


def _shortened(attention_map: AttentionMap) -> AttentionMap:
    """The first LONGEST words of both sides."""
    return replace(
        attention_map,
        source=_first_words(attention_map.source),
        target=_first_words(attention_map.target),
        weights={name: w[:LONGEST, :LONGEST] for name, w in attention_map.weights.items()},
        places={name: w[:LONGEST] for name, w in attention_map.places.items()},
    )


def _first_words(words: list[str]) -> list[str]:
    return words if len(words) <= LONGEST else [*words[: LONGEST - 1], "…"]


def tables_of(attention_map: AttentionMap, caption: str = "") -> str:
    """HTML tables of a map, one for each model or head; `caption` replaces empty names."""
    return _tables(_shortened(attention_map), caption)


def _section(attention_map: AttentionMap) -> str:
    """The two texts, and a table or pictures for each model or head."""
    end = -1 if attention_map.ends else None
    texts = [side[:end] for side in (attention_map.source, attention_map.target)]
    lines = "<br>".join(html.escape(" ".join(text)) for text in texts if text)
    tables = f'<div class="maps">{_tables(attention_map)}</div>' if attention_map.source else ""
    return f"<section><p>{lines}</p>{_picture_figures(attention_map)}{tables}</section>"


def _picture_figures(attention_map: AttentionMap) -> str:
    """The picture once for each word, with the attention over it; a row for each model."""
    if not attention_map.places:
        return ""
    image = source_picture(attention_map.picture)
    ground = "" if image is None else f"; --ground: url({data_url(image)})"
    rows = []
    for name, places in attention_map.places.items():
        height, width = places.shape[1:] if image is None else image.shape[:2]
        figures = "".join(map(_picture_figure, attention_map.target, places))
        style = f"--shape: {width} / {height}{ground}"
        caption = f"<h3>{html.escape(name)}</h3>" if name else ""
        rows.append(f'{caption}<div class="looks" style="{style}">{figures}</div>')
    return "".join(rows)


def _picture_figure(word: str, weights: np.ndarray) -> str:
    """The picture under the attention [rows, columns] of one word."""
    total = float(weights.sum())
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    label = f"{word}: most on row {row + 1}, column {column + 1} ({weights.max():.2f})"
    if total <= 0.995:
        label += f"; {total:.2f} on the picture"
    label = html.escape(label)
    overlay = data_url(attention_overlay(weights))
    return (
        f'<figure class="look" tabindex="0" role="img" aria-label="{label}" data-value="{label}">'
        f'<div style="background-image: url({overlay}), var(--ground, none)"></div>'
        f"<figcaption>{html.escape(word)}</figcaption></figure>"
    )


def _tables(attention_map: AttentionMap, default_caption: str = "") -> str:
    head = "".join(f'<th scope="col">{html.escape(word)}</th>' for word in attention_map.source)
    figures = []
    for name, weights in attention_map.weights.items():
        rows = "".join(
            f'<tr><th scope="row">{html.escape(word)}</th>'
            f"{_cells(word, attention_map.source, row)}</tr>"
            for word, row in zip(attention_map.target, weights, strict=True)
        )
        caption = html.escape(name or default_caption)
        if caption:
            caption = f"<figcaption>{caption}</figcaption>"
        table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
        figures.append(f"<figure>{table}{caption}</figure>")
    return "".join(figures)


def _cells(word: str, source: Sequence[str], weights: np.ndarray) -> str:
    """Cells of one target word."""
    labels = [html.escape(f"{word} ← {s}: {w:.3f}") for s, w in zip(source, weights, strict=True)]
    return "".join(
        f'<td tabindex="0" style="--w:{weight:.3f}" data-value="{label}"></td>'
        for label, weight in zip(labels, weights, strict=True)
    )
