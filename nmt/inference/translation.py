"""Input and output types of the translator: constraints, forced decodings and translations."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK, Hypothesis, Request
from nmt.inference.prefix_spellings import PrefixSpeller
from nmt.tokenizer import Tokenizer

TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class Constraint:
    """Lexical constraints on one translation.

    prefix: text with which the translation must begin
    required: words or phrases that the translation must contain
    forbidden: words or phrases that the translation must not contain
    """

    prefix: str = ""
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def added_to(
        self,
        request: Request,
        speller: PrefixSpeller,
        continuing: frozenset[int],
        spare_tokens: int,
    ) -> Request:
        """Returns a search request with this constraint added, encoded as target token ids.

        request: search request without constraints
        speller: finder of the subword sequences that spell the prefix
        continuing: ids of subwords that continue a word
        spare_tokens: number of tokens that a translation may have beyond prefix and required
            phrases

        Raises UserError if the vocabulary cannot spell a phrase or the constraint contradicts
        itself.
        """
        tokenizer = speller.tokenizer
        # Required phrases consist of whole words. A prefix may end inside a word.
        texts = [self.prefix, *self.required]
        prefix, *required = (tuple(ids) for ids in tokenizer.encode_target(texts))
        spellings = speller.spellings(self.prefix)
        impossible = [text for text, ids in zip(self.required, required, strict=True) if UNK in ids]
        if spellings and not spellings[0]:
            impossible.append(self.prefix)
        if impossible:
            problem = "contains characters that are not in the vocabulary of the model"
            raise UserError(f'constraints: "{impossible[0]}" {problem}')
        forbidden = tuple(
            tuple(spelling)
            for text in self.forbidden
            if text.strip()
            for spelling in tokenizer.spellings(text)
        )
        for sequence in [prefix, *required]:
            _check_allowed(sequence, forbidden, tokenizer)
        # The length limit of a short source must not truncate the required phrases.
        needed = len(prefix) + sum(map(len, required)) + spare_tokens
        return replace(
            request,
            max_length=max(request.max_length, needed),
            spellings=spellings,
            required=tuple(ids for ids in required if ids),
            forbidden=forbidden,
            continuing=continuing,
        )


def _check_allowed(sequence: TokenIds, forbidden: Sequence[TokenIds], tokenizer: Tokenizer) -> None:
    for banned in forbidden:
        starts = range(len(sequence))
        if any(sequence[start : start + len(banned)] == banned for start in starts):
            required_text, banned_text = tokenizer.decode([list(sequence), list(banned)])
            raise UserError(
                f'constraints: "{required_text}" is required, but contains "{banned_text}", '
                "which is forbidden; remove one of them"
            )


@dataclass(frozen=True)
class ForcedDecoding:
    """Token probabilities and attention weights of a given translation under the model.

    log_probs: [tokens + EOS] log-probabilities of the tokens, in nats
    weights: [tokens + EOS, source + EOS] attention weights, averaged over the heads; None without
        attention
    heads: [heads, tokens + EOS, source + EOS] attention weights of each head; None unless a single
        model has several heads
    places: [tokens + EOS, rows, columns] attention weights of the grid cells of an image; None for
        a source without image. For each token, `weights` and `places` together sum to 1
    """

    log_probs: np.ndarray
    weights: np.ndarray | None
    heads: np.ndarray | None = None
    places: np.ndarray | None = None

    @property
    def log_prob(self) -> float:
        return float(self.log_probs.sum(dtype=np.float64))

    @property
    def perplexity(self) -> float:
        return perplexity(self.log_prob, len(self.log_probs))

    def __repr__(self) -> str:
        shape = None if self.weights is None else list(self.weights.shape)
        return (
            f"ForcedDecoding(log_prob={self.log_prob:.3f}, "
            f"tokens={len(self.log_probs)}, weights={shape})"
        )


def perplexity(log_prob: float, tokens: int) -> float:
    """Returns the perplexity, exp(-log_prob / tokens), or NaN for 0 tokens.

    The exponent is limited to 700, because exp overflows above about 709 in float64.
    """
    return math.exp(min(-log_prob / tokens, 700.0)) if tokens else math.nan


@dataclass(frozen=True)
class Translation:
    """Translation of one input line: all hypotheses of the search.

    source: source token ids
    hypotheses: hypotheses, best first; empty for a line without words
    texts: text of each hypothesis
    details: token probabilities and attention weights of the best hypotheses; their number is the
        argument `details_of` of `Translator.translations`
    """

    source: Sequence[int]
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
        names = ("translation", "log-probability", "score")
        head = "".join(f'<th scope="col">{name}</th>' for name in names)
        rows = "".join(
            f"<tr><td>{html.escape(text)}</td><td>{hypothesis.log_prob:.3f}</td>"
            f"<td>{hypothesis.score:.3f}</td></tr>"
            for hypothesis, text in zip(self.hypotheses, self.texts, strict=True)
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
