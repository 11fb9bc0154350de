"""Classified texts with their important words marked, as a self-contained HTML page, a picture or JSON."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nmt.drawing.pages import fragment, page
from nmt.foundation.progress import waiting
from nmt.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nmt.drawing.plots import Marked

PICTURES = 12
"""Texts drawn in a .png; the others hold all."""
NOTE = (
    "Stronger colour: more attention, relative to the most important word of the same text; hover, tap or move with TAB for "
    "the word's share of the attention. The shares of a text sum to 1."
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Classified:
    """A text's labels; the probability of every label; its words, or other units, and the share of the attention that each
    got. The shares sum to 1 (None if the pooling has no attention weights, or the text has no tokens). In a notebook it is
    shown with its words marked."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    words: list[str]
    importances: np.ndarray | None

    def plot(self) -> Figure:
        """A matplotlib figure of the text with its words marked."""
        from nmt.drawing import plots

        return plots.marked_texts([_marked(self)])

    def _repr_html_(self) -> str:
        return fragment(_section(self, None))


def write_explanations(
    answers: Sequence[Classified], path: Path, gold: Sequence[Sequence[str]] | None = None
) -> None:
    """Writes the format that the ending of `path` names. .json: every text; .html and .png: only texts with words.
    .html also shows the right labels if they are known."""
    if path.suffix == ".json":
        write_atomically(
            path, (json.dumps([as_json(a) for a in answers], ensure_ascii=False) + "\n").encode()
        )
        return
    rows = [
        (a, None if gold is None else tuple(gold[i]))
        for i, a in enumerate(answers)
        if a.importances is not None
    ]
    if not rows:
        log.warning("%s is not written: there are only empty lines", path)
    elif path.suffix == ".png":
        from nmt.drawing import plots

        with waiting(f"drawing {path.name}"):
            plots.save(plots.marked_texts([_marked(a) for a, _ in rows[:PICTURES]]), path)
    else:
        write_atomically(
            path,
            page("Which words decided", NOTE, "\n".join(_section(a, right) for a, right in rows)),
        )


def _marked(answer: Classified) -> Marked:
    from nmt.drawing.plots import Marked

    title = f"{', '.join(answer.labels) or 'no label'}  ({max(answer.probabilities.values()):.2f})"
    shares = np.zeros(len(answer.words)) if answer.importances is None else answer.importances
    return Marked(title, answer.words, shares)


def as_json(answer: Classified) -> dict[str, object]:
    """Everything known about a text's labels."""
    shares = (
        None
        if answer.importances is None
        else [round(float(share), 7) for share in answer.importances]
    )
    probabilities = {label: round(p, 5) for label, p in answer.probabilities.items()}
    return {
        "labels": list(answer.labels), "probabilities": probabilities, "words": answer.words, "importances": shares,
    }  # fmt: skip


def _section(answer: Classified, right: tuple[str, ...] | None) -> str:
    shares = np.zeros(len(answer.words)) if answer.importances is None else answer.importances
    most = max(float(shares.max()), 1e-12) if shares.size else 1.0
    words = " ".join(
        f'<mark tabindex="0" style="--w:{0.75 * share / most:.3f}" data-value="{share:.3f}">{html.escape(word)}</mark>'
        for word, share in zip(answer.words, shares, strict=True)
    )
    likely = sorted(answer.probabilities.items(), key=lambda item: -item[1])
    others = ", ".join(f"{html.escape(label)} {p:.2f}" for label, p in likely[:5])
    guess = html.escape(", ".join(answer.labels) or "no label")
    wrong = right is not None and set(right) != set(answer.labels)
    verdict = (
        f' <span class="wrong">(right: {html.escape(", ".join(right) or "no label")})</span>'
        if wrong and right is not None
        else ""
    )
    return f'<section><span class="guess">{guess}</span>{verdict} <span class="others">{others}</span><br>{words}</section>'
