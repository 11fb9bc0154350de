"""Classified texts with highlighted important words, as an HTML page, an image or JSON."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from nmt.drawing import FIGURES, INK, literal
from nmt.drawing.pages import page, render
from nmt.foundation.progress import waiting
from nmt.storage.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = 12
"""Maximum number of texts in an image file; .html and .json files contain all texts."""
MOST = 6
"""Maximum number of words in the table that shows the effect of hiding each word of a text."""
SHADE = (0.12, 0.38, 0.63)
"""Background colour of highlighted words: red, green and blue, each from 0 to 1. The opacity grows
with the importance of the word.
"""
TEXT_WIDTH = 9.0
"""Width of a figure of highlighted texts, in inches."""
MARGIN = 0.2
"""Left and right margin of highlighted texts, in inches."""
LINE_HEIGHT = 0.27
"""Line spacing of highlighted texts, in inches."""
WORD_SPACE = 0.09
"""Space between words of highlighted texts, in inches."""
NOTE = (
    "A stronger colour means a larger attention weight, relative to the most important word of the "
    "text. Hover, tap, or press Tab and the arrow keys to see the weight. The weights of a text "
    "sum to 1."
)
EFFECTS_NOTE = (
    "Click a word or press Enter to hide it and to see the probability of the predicted label "
    "before → after. A table shows the words whose hiding changes that probability most; a red bar "
    "is an increase."
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Classified:
    """Prediction of a classifier for a text.

    labels: predicted labels
    probabilities: probability of every label
    words: words or subwords of the text
    importances: attention weight of each word [words], with sum 1; None if the classifier has no
        attention or the text has no words
    line: text that was classified
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]
    words: list[str]
    importances: np.ndarray | None
    line: str = ""

    @property
    def shares(self) -> np.ndarray:
        """Importances of the words, [words]; zeros without attention."""
        return np.zeros(len(self.words)) if self.importances is None else self.importances

    @property
    def prediction(self) -> str:
        """Predicted labels, separated by commas; "no label" if no label is predicted."""
        return ", ".join(self.labels) or "no label"

    @property
    def likeliest(self) -> str:
        """Label with the largest probability. A multi-label classifier may predict no label,
        because it predicts only labels with a probability above 0.5.
        """
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def most_attended(self) -> list[str]:
        """Up to three words with the largest attention weights, the largest first."""
        return [self.words[i] for i in np.argsort(-self.shares, kind="stable")[:3]]

    @property
    def title(self) -> str:
        """Predicted labels, followed by the largest probability among all labels in parentheses,
        such as `good  (0.80)`.
        """
        return f"{self.prediction}  ({max(self.probabilities.values()):.2f})"

    def plot(self) -> Figure:
        """Returns a matplotlib figure of the text with highlighted words."""
        return _figure([self])

    def _repr_html_(self) -> str:
        return render("fragment", section=_section(self, None))


def write_explanations(
    answers: Sequence[Classified],
    path: Path,
    gold: Sequence[Sequence[str]] | None = None,
    effects: Sequence[Sequence[float]] = (),
    lead: Sequence[str] = (),
) -> None:
    """Writes classified texts to a file.

    answers: classified texts
    path: output file; .json writes every text, .png, .pdf or .svg writes an image, and any other
        extension writes an HTML page of the texts with word importances
    gold: correct labels of each text, shown on an HTML page; None if unknown
    effects: for each word of a text, the change of the predicted label's probability when the word
        is hidden from the classifier [words]; may cover only the first texts
    lead: sentences at the top of an HTML page
    """
    if path.suffix == ".json":
        text = json.dumps([as_json(answer) for answer in answers], ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode())
        return
    # Texts without importances are left out.
    numbers = [i for i, answer in enumerate(answers) if answer.importances is not None]
    if not numbers:
        log.warning("%s: not written, because no text has a word with an importance above 0", path)
    elif path.suffix in FIGURES:
        from nmt.drawing.plots import save

        if len(numbers) > PICTURES:
            log.warning(
                "%s: shows only the first %s of %s texts; write .html or .json to get all",
                path,
                PICTURES,
                f"{len(numbers):,}",
            )
        with waiting(f"drawing {path.name}"):
            save(_figure([answers[i] for i in numbers[:PICTURES]]), path)
    else:
        sections = [
            _section(answers[i], None if gold is None else gold[i], *effects[i : i + 1])
            for i in numbers
        ]
        title = "Words to which the classifier attends"
        note = f"{NOTE} {EFFECTS_NOTE}" if any(map(len, effects)) else NOTE
        write_atomically(path, page(title, note, sections, lead=lead))


def _figure(answers: Sequence[Classified]) -> Figure:
    """Returns a figure of classified texts; a more important word has a darker background."""
    from nmt.drawing import plots

    words = [word for answer in answers for word in (answer.title, *answer.words)]
    with warnings.catch_warnings(action="ignore", category=UserWarning), plots.fonts_for(words):
        figure = plots.Figure(figsize=(TEXT_WIDTH, 1.0))
        # Positions in inches from the upper left corner, because the height is not known yet.
        style: Any = {"fontsize": 9, "color": INK, "transform": figure.dpi_scale_trans}
        y = 0.3
        for answer in answers:
            figure.text(MARGIN, -y, literal(answer.title), weight="bold", **style)
            y += LINE_HEIGHT
            x = MARGIN
            greatest = max([1e-12, *answer.shares])
            for word, share in zip(answer.words, answer.shares, strict=True):
                label = figure.text(x, -y, literal(word), **style)
                width = label.get_window_extent().width / figure.dpi  # width in inches
                if x + width > TEXT_WIDTH - MARGIN and x > MARGIN:
                    x = MARGIN
                    y += LINE_HEIGHT
                    label.set_position((x, -y))  # the word becomes the first one of the next line
                colour = (*SHADE, 0.7 * share / greatest)
                label.set_bbox({"facecolor": colour, "edgecolor": "none", "pad": 1.5})
                x += width + WORD_SPACE
            y += 1.6 * LINE_HEIGHT  # vertical space before the next title
        figure.set_size_inches(TEXT_WIDTH, y)
        for label in figure.texts:
            label.set_y(y + label.get_position()[1])  # inches from the lower left corner
    return figure


def as_json(answer: Classified) -> dict[str, object]:
    """Returns the JSON object of a classified text."""
    importances = answer.importances
    return {
        "labels": list(answer.labels),
        "probabilities": {label: round(p, 5) for label, p in answer.probabilities.items()},
        "words": answer.words,
        "importances": None if importances is None else importances.round(7).tolist(),
    }


def _section(
    answer: Classified, gold: Sequence[str] | None, effects: Sequence[float] = ()
) -> Markup:
    likely = sorted(answer.probabilities.items(), key=lambda item: -item[1])
    rows = list(zip(answer.words, answer.shares, effects, strict=False))
    rows.sort(key=lambda row: -abs(row[2]))  # largest effect first
    return render(
        "marked_words",
        answer=answer,
        gold=gold,
        is_wrong=gold is not None and set(gold) != set(answer.labels),
        likely=likely[:5],
        effects=effects,
        greatest=max([1e-12, *answer.shares]),
        rows=rows[:MOST],
        largest=max([1e-12, *(abs(effect) for *_, effect in rows)]),
    )
