"""Output types of the translator: forced decodings and translations."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nmt.foundation.interfaces import Hypothesis, Reranker


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
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

    def reranked(self, search: Reranker) -> "Translation":
        """Returns the translation with the hypotheses that the search selects by their texts."""
        if not self.hypotheses:  # no translation meets the constraints
            return self
        ranking = search.rerank(self.hypotheses, self.texts)
        hypotheses = [hypothesis for hypothesis, _ in ranking]
        return replace(self, hypotheses=hypotheses, texts=[text for _, text in ranking])

    def distinct(self) -> "Translation":
        """Returns the translation without hypotheses that have the same text as a better
        hypothesis."""
        texts = self.texts
        ranks = [rank for rank, text in enumerate(texts) if text not in texts[:rank]]
        return Translation(
            source=self.source,
            hypotheses=[self.hypotheses[rank] for rank in ranks],
            texts=[texts[rank] for rank in ranks],
            details=[self.details[rank] for rank in ranks if rank < len(self.details)],
        )

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
