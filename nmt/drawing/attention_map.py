"""Attention of the words of a text to those of another or to places of a picture: as a self-contained HTML page, a picture,
JSON, or in a notebook."""

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
from nmt.drawing.picture_overlay import png, seen, veil
from nmt.foundation.progress import Progress, waiting
from nmt.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nmt.drawing.plots import Panel, Row

PICTURES = 8
"""Sentences drawn in a .png; .html and .json hold all."""
LONGEST = 60
"""Words shown of either side of a sentence in .html and .png; .json holds all."""

log = logging.getLogger(__name__)

NOTE = (
    "Columns: the source. Rows: the translation, in the order it was written. "
    'Weight 0 <span class="legend"></span> 1; hover, tap or move with TAB for the number. &lt;/s&gt; ends the sentence.'
)

NOTE_OF_PLACES = (
    "The picture once for each word, in the order of writing: warm and clear is where attention was while the word was "
    "predicted, pale is what it left out. Hover, tap or move with TAB for numbers. &lt;/s&gt; ends the sentence."
)


@dataclass(frozen=True)
class AttentionMap:
    """Words of a translation and its source (or other units), and weights [target, source] by the name of the model (or
    head); each row sums to 1. `ends`: the last of both sides are `</s>`. `picture`: the name of what the source shows;
    `places` [target, rows, columns]: the attention to its places; then the two together sum to 1. In a notebook it is shown
    as a table."""

    source: list[str]
    target: list[str]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    ends: bool = True
    picture: str = ""
    places: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def total(self) -> np.ndarray:
        """The mean of all weights."""
        return np.mean(list(self.weights.values()), axis=0)

    def plot(self) -> Figure:
        """A matplotlib figure with a heat map for each model or head."""
        from nmt.drawing import plots

        if self.places:
            return plots.looks(_rows([_shortened(self)]))
        return plots.maps(_panels([_shortened(self)]), len(self.weights))

    def _repr_html_(self) -> str:
        return fragment(_section(_shortened(self)))

    def __repr__(self) -> str:
        named = ", ".join(name for name in self.weights if name)
        source, target = (" ".join(side) for side in (self.source, self.target))
        return f"AttentionMap({source!r} → {target!r}{f', {named}' if named else ''})"


def write_map(maps: Sequence[AttentionMap], path: Path) -> None:
    """Writes the maps in the format that the ending of `path` names; empty sentences are left out."""
    shown = [
        each for each in maps if each.places or (each.weights and len(each.source) > each.ends)
    ]
    if not shown:
        log.warning("%s is not written: there are only empty lines", path)
        return
    if path.suffix != ".json":
        shown = [_shortened(each) for each in shown]
    if path.suffix == ".png":
        from nmt.drawing import plots

        some = shown[:PICTURES]
        most = max(len(each.weights) for each in some)
        with waiting(f"drawing {path.name}"):
            if some[0].places:
                plots.save(plots.looks(_rows(some)), path)
            else:
                plots.save(plots.maps(_panels(some), 2 if most == 1 else most), path)
    elif path.suffix == ".json":
        rows = [
            {"source": m.source, "target": m.target, "weights": _rounded(m.weights)}
            | ({"picture": m.picture, "places": _rounded(m.places)} if m.places else {})
            for m in shown
        ]
        write_atomically(path, (json.dumps(rows, ensure_ascii=False) + "\n").encode())
    else:
        with Progress(f"drawing {path.name}", len(shown), "sentences") as step:
            sections = []
            for each in shown:
                sections.append(_section(each))
                step()
        note = NOTE_OF_PLACES if shown[0].places else NOTE
        write_atomically(path, page("Attention", note, "\n".join(sections)))


def _rounded(weights: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: each.round(5).tolist() for name, each in weights.items()}


def _rows(maps: Sequence[AttentionMap]) -> list[Row]:
    from nmt.drawing.plots import Row

    return [
        Row(seen(each.picture), each.target, places, name)
        for each in maps
        for name, places in each.places.items()
    ]


def _panels(maps: Sequence[AttentionMap]) -> list[Panel]:
    from nmt.drawing.plots import Panel

    return [
        Panel(each.source, each.target, weights, name)
        for each in maps
        for name, weights in each.weights.items()
    ]


def _shortened(whole: AttentionMap) -> AttentionMap:
    """The first LONGEST words of both sides."""
    source, target = (
        side if len(side) <= LONGEST else [*side[: LONGEST - 1], "…"]
        for side in (whole.source, whole.target)
    )
    weights = {name: w[:LONGEST, :LONGEST] for name, w in whole.weights.items()}
    places = {name: w[:LONGEST] for name, w in whole.places.items()}
    return replace(whole, source=source, target=target, weights=weights, places=places)


def tables_of(whole: AttentionMap, caption: str = "") -> str:
    """HTML tables of a map, one for each model or head; `caption` stands for names that are empty."""
    return "".join(_tables(_shortened(whole), caption))


def _section(each: AttentionMap) -> str:
    """The two texts, and a table or pictures for each model or head."""
    sides = (
        each.source[: len(each.source) - each.ends],
        each.target[: len(each.target) - each.ends],
    )
    said = "<br>".join(html.escape(" ".join(side)) for side in sides if side)
    looks = "".join(_looks(each)) if each.places else ""
    tables = f'<div class="maps">{"".join(_tables(each))}</div>' if each.source else ""
    return f"<section><p>{said}</p>{looks}{tables}</section>"


def _looks(each: AttentionMap) -> list[str]:
    """The picture once for each word, with the attention over it."""
    image, figures = seen(each.picture), list[str]()
    ground = "" if image is None else png(image)
    for name, places in each.places.items():
        rows, columns = places.shape[1:] if image is None else image.shape[:2]
        style = f"--shape: {columns} / {rows}" + (f"; --ground: url({ground})" if ground else "")
        words = []
        for word, weights in zip(each.target, places, strict=True):
            share, at = float(weights.sum()), np.unravel_index(int(weights.argmax()), weights.shape)
            said = f"{word}: most on row {at[0] + 1}, column {at[1] + 1} ({weights.max():.2f})"
            said += "" if share > 0.995 else f"; {share:.2f} on the picture"
            said = html.escape(said)
            words.append(
                f'<figure class="look" tabindex="0" role="img" aria-label="{said}" data-value="{said}">'
                f'<div style="background-image: url({png(veil(weights))}), var(--ground, none)"></div>'
                f"<figcaption>{html.escape(word)}</figcaption></figure>"
            )
        caption = f"<h3>{html.escape(name)}</h3>" if name else ""
        figures.append(f'{caption}<div class="looks" style="{style}">{"".join(words)}</div>')
    return figures


def _tables(each: AttentionMap, usual: str = "") -> list[str]:
    head = "".join(f'<th scope="col">{html.escape(word)}</th>' for word in each.source)
    figures = []
    for name, all_weights in each.weights.items():
        rows = []
        for word, weights in zip(each.target, all_weights, strict=True):
            cells = "".join(
                f'<td tabindex="0" style="--w:{w:.3f}" data-value="{html.escape(f"{word} ← {source}: {w:.3f}")}"></td>'
                for source, w in zip(each.source, weights, strict=True)
            )
            rows.append(f'<tr><th scope="row">{html.escape(word)}</th>{cells}</tr>')
        caption = f"<figcaption>{html.escape(name or usual)}</figcaption>" if name or usual else ""
        table = (
            f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )
        figures.append(f"<figure>{table}{caption}</figure>")
    return figures
