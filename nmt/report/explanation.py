"""Classified texts with their important words marked, as a self-contained HTML page, a picture or JSON."""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from nmt.inference.text_classifier import Classified
from nmt.storage.files import write_atomically

PICTURES = 12
"""Texts drawn in a .png; the others hold all."""

log = logging.getLogger(__name__)

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Which words decided</title><style>
body {{ font: 16px/1.9 system-ui, sans-serif; margin: 2rem auto; max-width: 56rem; padding: 0 1rem; color: #222; }}
h1 {{ font-size: 1.2rem; font-weight: 600; }}
p.note {{ color: #666; font-size: .9rem; line-height: 1.4; }}
section {{ border-top: 1px solid #ddd; padding: .7rem 0; }}
.guess {{ font-weight: 600; }}
.wrong {{ color: #b03a2e; }}
.others {{ color: #888; font-size: .85rem; }}
mark {{ color: inherit; border-radius: .2rem; padding: .1rem .15rem; }}
mark:hover {{ outline: 2px solid #c0504d; }}
</style></head><body><h1>Which words decided</h1>
<p class="note">Darker: more attention, relative to the most important word of the same text; hover for the word's share
of the attention. The shares of a text sum to 1.</p>
{sections}
</body></html>
"""


def write_explanations(answers: Sequence[Classified], path: Path, gold: Sequence[Sequence[str]] | None = None) -> None:
    """Writes the format that the ending of `path` names. .json: every text; .html and .png: only texts with words.
    .html also shows the right labels if they are known."""
    if path.suffix == ".json":
        write_atomically(path, (json.dumps([as_json(a) for a in answers], ensure_ascii=False) + "\n").encode())
        return
    rows = [(a, None if gold is None else tuple(gold[i])) for i, a in enumerate(answers) if a.importances is not None]
    if not rows:
        log.warning("%s is not written: there are only empty lines", path)
    elif path.suffix == ".png":
        from nmt.report.plots import marked_texts

        marked_texts([a for a, _ in rows[:PICTURES]], path)
    else:
        write_atomically(path, PAGE.format(sections="\n".join(_section(a, right) for a, right in rows)).encode())


def as_json(answer: Classified) -> dict[str, object]:
    """Everything known about a text's labels."""
    shares = None if answer.importances is None else [round(float(share), 7) for share in answer.importances]
    probabilities = {label: round(p, 5) for label, p in answer.probabilities.items()}
    return {
        "labels": list(answer.labels), "probabilities": probabilities, "words": answer.words, "importances": shares,
    }  # fmt: skip


def _section(answer: Classified, right: tuple[str, ...] | None) -> str:
    assert answer.importances is not None
    most = max(float(answer.importances.max()), 1e-12)
    words = " ".join(
        f'<mark style="background:rgba(31,97,161,{0.75 * share / most:.3f})" title="{share:.3f}">{html.escape(word)}</mark>'
        for word, share in zip(answer.words, answer.importances, strict=True)
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
