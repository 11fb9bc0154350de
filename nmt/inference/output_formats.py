"""How translations are written: one or more whole lines for every line translated.

text      the best translation
jsonl     an object: source, and hypotheses with text, score, log_prob, tokens, token_log_probs (</s> last) and the
          alignment of words: pairs [source, target], weights, and weights of </s> (nmt/inference/word_alignment.py); of
          pictures, places: the attention of each token to their rows and columns
pharaoh   pairs of words of the best translation, 0-0 1-2: source-target, counted from 0
moses     number ||| translation ||| logprob= log-probability ||| score, a line for each hypothesis
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from nmt.inference.translation import Translation
from nmt.inference.word_alignment import merge
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

FormatName = Literal["text", "jsonl", "pharaoh", "moses"]
ONE_BEST = ("text", "pharaoh")
"""Formats that show the best hypothesis only."""


def details_needed(name: FormatName) -> int:
    """For how many hypotheses per line a format shows word probabilities or attention."""
    return {"pharaoh": 1, "jsonl": 1_000_000}.get(name, 0)


def lines(
    name: FormatName,
    tokenizer: Tokenizer,
    first: int,
    sources: Sequence[str],
    translations: Sequence[Translation],
    units: Units = "word",
) -> list[str]:
    """The lines, without newlines, for sources `first`, `first` + 1 …, translated with `details_needed`. Alignments are
    between `units`."""
    if name == "text":
        return [one_line(translation.text) for translation in translations]
    if name == "moses":
        return [line for i, found in enumerate(translations, first) for line in _moses(i, found)]
    written = []
    for source, found in zip(sources, translations, strict=True):
        each = [described(tokenizer, source, found, i, units) for i in range(len(found.details))]
        if name == "jsonl":
            written.append(json.dumps({"source": source, "hypotheses": each}, ensure_ascii=False))
        else:
            pairs = each[0]["alignment"]["pairs"] if each and each[0]["alignment"] else []
            written.append(" ".join(f"{s}-{t}" for s, t in pairs))
    return written


def one_line(text: str) -> str:
    """A translation as one line of a file (byte fallback can write a newline)."""
    return " ".join(text.split("\n"))


def _moses(number: int, found: Translation) -> list[str]:
    if not found.hypotheses:
        return [f"{number} |||  ||| logprob= 0 ||| 0"]
    return [
        f"{number} ||| {one_line(text)} ||| logprob= {h.log_prob:.6f} ||| {h.score:.6f}"
        for h, text in zip(found.hypotheses, found.texts, strict=True)
    ]


def described(
    tokenizer: Tokenizer, source: str, found: Translation, i: int, units: Units
) -> dict[str, Any]:
    """A hypothesis as the object that jsonl shows."""
    hypothesis, text, forced = found.hypotheses[i], found.texts[i], found.details[i]
    alignment = places = None
    if forced.places is not None:
        places = {"places": forced.places.round(5).tolist()}
    if forced.weights is not None and tokenizer.columns.sources:
        shown, of_source = tokenizer.source_units(source, list(found.source), units)
        written, of_target = tokenizer.target_units(text, hypothesis.tokens, units)
        merged = merge(forced.weights, of_source, of_target, (len(shown), len(written)))
        alignment = {
            "pairs": merged.pairs(), "weights": merged.weights.round(5).tolist(),
            "to_end": merged.to_end.round(5).tolist(), "at_end": merged.at_end.round(5).tolist(),
        }  # fmt: skip
    return {
        "text": one_line(text), "score": round(hypothesis.score, 6), "log_prob": round(hypothesis.log_prob, 6),
        "tokens": [*tokenizer.target_pieces(hypothesis.tokens), "</s>"],
        "token_log_probs": [round(float(value), 6) for value in forced.log_probs], "alignment": alignment, **(places or {}),
    }  # fmt: skip
