"""What is asked of a translator, and what it answers."""

from __future__ import annotations

import html
from dataclasses import dataclass

import numpy as np

from nmt.foundation.interfaces import Hypothesis


@dataclass(frozen=True)
class Constraint:
    """What a translation must look like: the text it begins with, words (or phrases) that it contains, and words that
    it does not contain."""

    prefix: str = ""
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forced:
    """A given translation under the model: natural-log probability of each of its tokens, EOS last, and the attention
    [tokens, source tokens], EOS last on both sides (None without attention, or if not asked for). For a single model
    with several heads, `heads` [heads, tokens, source tokens] are the weights of each head, each row with sum 1, and
    `weights` is their mean. `places` [tokens, rows, columns]: the attention to the places of a picture; together with
    `weights`, each token's has the sum 1."""

    log_probs: np.ndarray
    weights: np.ndarray | None
    heads: np.ndarray | None = None
    places: np.ndarray | None = None

    @property
    def log_prob(self) -> float:
        return float(self.log_probs.sum(dtype=np.float64))

    def __repr__(self) -> str:
        shape = None if self.weights is None else list(self.weights.shape)
        return f"Forced(log_prob={self.log_prob:.3f}, tokens={len(self.log_probs)}, weights={shape})"


@dataclass(frozen=True)
class Translation:
    """The hypotheses of one line, best first (none for a line without words), and their texts; `details` of the first
    ones, as many as were asked for."""

    source: list[int]
    hypotheses: list[Hypothesis]
    texts: list[str]
    details: list[Forced]

    @property
    def text(self) -> str:
        return self.texts[0] if self.texts else ""

    def __repr__(self) -> str:
        best = f", log_prob={self.hypotheses[0].log_prob:.3f}" if self.hypotheses else ""
        return f"Translation({self.text!r}{best}, hypotheses={len(self.hypotheses)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(text)}</td><td>{found.log_prob:.3f}</td><td>{found.score:.3f}</td></tr>"
            for found, text in zip(self.hypotheses, self.texts, strict=True)
        )
        head = "".join(f'<th scope="col">{name}</th>' for name in ("translation", "log-probability", "score"))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
