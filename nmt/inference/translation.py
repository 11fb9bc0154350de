"""What is asked of a translator, and what it answers."""

from __future__ import annotations

import html
from dataclasses import dataclass

import numpy as np

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK, Hypothesis, Request
from nmt.tokenizer import Tokenizer


@dataclass(frozen=True)
class Constraint:
    """What a translation must look like: the text it begins with, words (or phrases) that it contains, and words that
    it does not contain."""

    prefix: str = ""
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def added_to(
        self, request: Request, tokenizer: Tokenizer, continuing: frozenset[int], more: int
    ) -> Request:
        """The request with this constraint in target ids, and room for `more` tokens beside what must appear. `continuing`:
        the pieces that go on with a word. Raises UserError if this cannot be written, or contradicts itself."""
        texts = [self.prefix, *self.required]
        [prefix, *required] = (tuple(ids) for ids in tokenizer.encode_target(texts))
        for text, ids in zip(texts, (prefix, *required), strict=True):
            if UNK in ids:
                raise UserError(
                    f'constraints: "{text}" cannot be written with the vocabulary of this model'
                )
        forbidden = tuple(
            tuple(spelling)
            for text in self.forbidden
            if text.strip()
            for spelling in tokenizer.spellings(text)
        )
        for wanted in (prefix, *required):
            for banned in forbidden:
                if any(wanted[i : i + len(banned)] == banned for i in range(len(wanted))):
                    written, other = tokenizer.decode([list(wanted), list(banned)])
                    raise UserError(
                        f'constraints: "{written}" must appear, but "{other}" in it must not'
                    )
        length = max(request.max_length, len(prefix) + sum(map(len, required)) + more)
        return Request(
            length,
            request.seed,
            prefix,
            tuple(ids for ids in required if ids),
            forbidden,
            continuing,
        )


@dataclass(frozen=True)
class ForcedDecoding:
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
        return f"ForcedDecoding(log_prob={self.log_prob:.3f}, tokens={len(self.log_probs)}, weights={shape})"


@dataclass(frozen=True)
class Translation:
    """The hypotheses of one line, best first (none for a line without words), and their texts; `details` of the first
    ones, as many as were asked for."""

    source: list[int]
    hypotheses: list[Hypothesis]
    texts: list[str]
    details: list[ForcedDecoding]

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
        head = "".join(
            f'<th scope="col">{name}</th>' for name in ("translation", "log-probability", "score")
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
