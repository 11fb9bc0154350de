"""The sentences in which translations differ most, side by side."""

from __future__ import annotations

import difflib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nmt.analysis.comparison import Comparison
from nmt.drawing.attention_map import AttentionMap, tables_of
from nmt.tokenizer.words import words


@dataclass(frozen=True)
class Example:
    """A sentence: its place (from 0), source, reference, outputs with their chrF; `log_probs`: by model, of each output, in
    nats a token; `maps`: by model, where it looks while it writes its own output."""

    place: int
    source: str | None
    reference: str
    outputs: Mapping[str, str]
    scores: Mapping[str, float]
    log_probs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    maps: Mapping[str, AttentionMap] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {
            "line": self.place + 1, "source": self.source, "reference": self.reference, "outputs": dict(self.outputs),
            "chrf": {name: round(score, 2) for name, score in self.scores.items()},
            "log_probs_per_token": {m: {n: round(p, 4) for n, p in each.items()} for m, each in self.log_probs.items()},
        }  # fmt: skip


def most_different(compared: Comparison, count: int) -> list[int]:
    """Places of the sentences in which some system's chrF is furthest from that of the first; half of them are those that
    the first wins, if there are so many."""
    scores = compared.sentence_scores()
    first, *others = scores
    if not others:
        return sorted(range(len(compared.reference)), key=lambda i: (scores[first][i], i))[:count]

    def lead(i: int) -> float:
        return max((scores[first][i] - scores[other][i] for other in others), key=abs)

    ordered = sorted(
        (i for i in range(len(compared.reference)) if lead(i)), key=lambda i: (-lead(i), i)
    )
    won = [i for i in ordered if lead(i) > 0]
    lost = [i for i in reversed(ordered) if lead(i) < 0]
    half = max(count // 2, count - len(lost))
    chosen = won[:half]
    return [*chosen, *lost[: count - len(chosen)]]


def section(example: Example) -> str:
    """A part of the page."""
    rows = []
    if example.source is not None:
        rows.append(_row("source", html.escape(example.source), ""))
    rows.append(_row("reference", html.escape(example.reference), ""))
    for name, text in example.outputs.items():
        said = f"chrF {example.scores[name]:.0f}"
        for model, given in example.log_probs.items():
            said += f" · {given[name]:.2f} nats a token for {model}"
        rows.append(_row(name, marked(text, example.reference), said))
    maps = "".join(tables_of(each, name) for name, each in example.maps.items())
    drawn = (
        f'<details><summary>Where the models look</summary><div class="maps">{maps}</div></details>'
        if maps
        else ""
    )
    table = f"<table class=texts><tbody>{''.join(rows)}</tbody></table>"
    return f"<section><h3>Sentence {example.place + 1}</h3>{table}{drawn}</section>"


def _row(name: str, text: str, said: str) -> str:
    note = f'<div class="others">{html.escape(said)}</div>' if said else ""
    return f'<tr><th scope="row">{html.escape(name)}</th><td>{text or "<i>(empty)</i>"}{note}</td></tr>'


def marked(text: str, reference: str) -> str:
    """HTML of a text in which the words that the reference does not have at that place are marked."""
    own, wanted = words(text), words(reference)
    matcher = difflib.SequenceMatcher(None, own, wanted, autojunk=False)
    same = {i + k for i, _, size in matcher.get_matching_blocks() for k in range(size)}
    return " ".join(
        html.escape(word) if i in same else f"<mark class=other>{html.escape(word)}</mark>"
        for i, word in enumerate(own)
    )


def markdown(examples: Sequence[Example]) -> str:
    lines = ["### Sentences that differ most", ""]
    for each in examples:
        lines.append(f"{each.place + 1}.")
        lines += [f"   - source: {each.source}"] if each.source is not None else []
        lines.append(f"   - reference: {each.reference}")
        lines += [
            f"   - {name} (chrF {each.scores[name]:.0f}): {text}"
            for name, text in each.outputs.items()
        ]
    return "\n".join([*lines, ""])
