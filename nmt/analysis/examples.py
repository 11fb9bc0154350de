"""Example sentences with the largest differences between translations."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt.analysis.comparison import Comparison
from nmt.analysis.word_statistics import bare
from nmt.drawing.attention_map import AttentionMap
from nmt.drawing.pages import render
from nmt.tokenizer.words import words

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Example:
    """A sentence with its translations.

    number: index of the sentence, from 0
    source: source sentence; None if unknown
    reference: reference of the sentence
    outputs: translation by system
    scores: chrF by system
    log_probs: by model, the log-probability of each system's translation in nats per token
    maps: attention of each model during its own translation
    """

    number: int
    source: str | None
    reference: str
    outputs: Mapping[str, str]
    scores: Mapping[str, float]
    log_probs: Mapping[str, Mapping[str, float]]
    maps: Mapping[str, AttentionMap]

    def as_json(self) -> dict[str, object]:
        """Plain containers for JSON, without attention maps."""
        log_probs = {
            model: {name: round(value, 4) for name, value in values.items()}
            for model, values in self.log_probs.items()
        }
        return {
            "line": self.number + 1,
            "source": self.source,
            "reference": self.reference,
            "outputs": dict(self.outputs),
            "chrf": {name: round(score, 2) for name, score in self.scores.items()},
            "log_probs_per_token": log_probs,
        }


def most_different(comparison: Comparison, count: int) -> list[int]:
    """Indices of the sentences with the largest differences in chrF between the first system and
    another.

    In half of them the first system is better, if there are enough. For a single system, the
    sentences with the lowest chrF are returned.
    """
    first, *others = comparison.sentence_scores.values()
    if not others:
        return sorted(range(len(first)), key=lambda i: (first[i], i))[:count]
    # Difference from the most different other system, positive where the first system is better.
    leads = [max((first[i] - other[i] for other in others), key=abs) for i in range(len(first))]
    ordered = sorted(range(len(leads)), key=lambda i: (-leads[i], i))
    won = [i for i in ordered if leads[i] > 0]
    lost = [i for i in reversed(ordered) if leads[i] < 0]
    won = won[: max(count // 2, count - len(lost))]
    return [*won, *lost[: count - len(won)]]


def section(example: Example) -> Markup:
    """HTML of an example."""
    notes = {}
    for name, score in example.scores.items():
        log_probs = [
            f"{values[name]:.2f} nats a token for {model}"
            for model, values in example.log_probs.items()
        ]
        notes[name] = " · ".join([f"chrF {score:.0f}", *log_probs])
    return render("example", example=example, notes=notes, marked=marked)


def marked(text: str, reference: str) -> Markup:
    """HTML of a text, with marked words where the reference has others. Punctuation does not count.

    text: translation
    reference: reference of the sentence
    """
    written = words(text)
    # A mark that stands alone is compared as it is.
    expected = [bare(word) or word for word in words(reference)]
    compared = [bare(word) or word for word in written]
    matcher = difflib.SequenceMatcher(None, compared, expected, autojunk=False)
    shared = {i + k for i, _, size in matcher.get_matching_blocks() for k in range(size)}
    return render("marked_differences", words=list(enumerate(written)), shared=shared)


def markdown(examples: Sequence[Example]) -> str:
    """Examples as a list in Markdown."""
    lines = ["### Sentences that differ most", ""]
    for example in examples:
        lines.append(f"{example.number + 1}.")
        if example.source is not None:
            lines.append(f"   - source: {example.source}")
        lines.append(f"   - reference: {example.reference}")
        lines += [
            f"   - {name} (chrF {example.scores[name]:.0f}): {text}"
            for name, text in example.outputs.items()
        ]
    return "\n".join([*lines, ""])
