"""Quality of translations against references, by sacreBLEU (Post 2018), on detokenised text, with signatures."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Depth

log = logging.getLogger(__name__)
MetricName = Literal["bleu", "chrf", "ter", "exact", "loss"]
TokenizeName = Literal[
    "auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none", "flores101", "flores200"
]
WITHOUT_SPACES = {
    "zh": "zh",
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    "th": "char",
    "lo": "char",
    "km": "char",
    "my": "char",
}
"""Languages for whose words spaces say too little, by their codes, and sacreBLEU's tokeniser for them."""
NEEDS = {"ja-mecab": ("MeCab", "sacrebleu[ja]"), "ko-mecab": ("mecab_ko", "sacrebleu[ko]")}
"""Modules that tokenisers need, and how pip installs them."""
LOWER_IS_BETTER = ("ter", "loss")


@dataclass(frozen=True)
class Result:
    """A score in per cent (TER may exceed 100) and the signature that says how it was computed."""

    score: float
    signature: str


class Metric:
    """How a run is judged. The metric `name` chooses the checkpoint, decides early stopping and is the objective of
    sweeps; BLEU, chrF and exact match are always reported. `tokenize`: sacreBLEU's, for BLEU; auto: by the target language,
    see `of`. `lowercase`: case does not count."""

    def __init__(
        self,
        *,
        name: MetricName = "bleu",
        tokenize: TokenizeName = "auto",
        lowercase: bool = False,
        char_order: Depth = 6,
    ) -> None:
        self.name, self.tokenize, self.lowercase, self.char_order = (
            name,
            tokenize,
            lowercase,
            char_order,
        )

    def of(self, language: str) -> Metric:
        """This metric for a target language, given by its code: `auto` becomes the tokeniser for it, or `char` where that is
        not installed. Raises UserError if the tokeniser cannot be used here."""
        tokenize = self.tokenize
        if tokenize == "auto":
            tokenize = WITHOUT_SPACES.get(re.split(r"[-_]", language.lower())[0], "13a")  # type: ignore[assignment]
            if tokenize in NEEDS and find_spec(NEEDS[tokenize][0]) is None:
                log.warning(
                    "metric.tokenize=auto: char, as %s is not installed", NEEDS[tokenize][1]
                )
                tokenize = "char"
        found = Metric(
            name=self.name, tokenize=tokenize, lowercase=self.lowercase, char_order=self.char_order
        )
        try:
            found.score(["a"], ["a"])
        except Exception as error:  # what is missing, sacreBLEU and its packages say in many ways
            how = f": pip install '{NEEDS[tokenize][1]}'" if tokenize in NEEDS else ""
            raise UserError(
                f"metric.tokenize={tokenize}: cannot be used here ({_first_line(error)}){how}"
            ) from error
        return found

    @property
    def options(self) -> dict[str, Any]:
        """How texts are compared, as `similarity` takes it."""
        return {
            "tokenize": self.tokenize,
            "lowercase": self.lowercase,
            "char_order": self.char_order,
        }

    def better(self, new: float, old: float | None) -> bool:
        """Whether `new` improves on `old`."""
        return old is None or (new < old if self.name in LOWER_IS_BETTER else new > old)

    def score(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        ter: bool = False,
        others: Sequence[Sequence[str]] = (),
        orders: bool = False,
    ) -> dict[str, Result]:
        """bleu, chrf and exact, and optionally ter, of aligned lines. `others`: further references, "" where a line has
        fewer; `orders`: also bleu1, bleu2 and bleu3, of words, pairs and triples at most, as captions are judged."""
        from sacrebleu.metrics import BLEU, CHRF, TER

        # Text that is compared as it is has been tokenised on purpose: no warning.
        bleu = partial(
            BLEU, tokenize=self.tokenize, lowercase=self.lowercase, force=self.tokenize == "none"
        )
        metrics = {
            "bleu": bleu(),
            "chrf": CHRF(char_order=self.char_order, lowercase=self.lowercase),
            **({"ter": TER()} if ter or self.name == "ter" else {}),
        }
        for order in (1, 2, 3) if orders else ():
            metrics[f"bleu{order}"] = bleu(max_ngram_order=order)
        streams: list[Any] = [
            list(references),
            *([line or None for line in other] for other in others),
        ]  # None: no such
        results = {}
        for name, metric in metrics.items():
            score = metric.corpus_score(list(hypotheses), streams).score
            results[name] = Result(score, str(metric.get_signature()))
        same = 0
        for hypothesis, *wanted in zip(hypotheses, references, *others, strict=True):
            given = {
                line.lower() if self.lowercase else line
                for line in (wanted[0], *filter(None, wanted[1:]))
            }
            same += (hypothesis.lower() if self.lowercase else hypothesis) in given
        case = "spaces counted, case not" if self.lowercase else "case and spaces counted"
        results["exact"] = Result(100 * same / max(1, len(references)), f"whole lines, {case}")
        return results


def similarity(
    name: Literal["bleu", "chrf"],
    tokenize: str = "13a",
    lowercase: bool = False,
    char_order: int = 6,
) -> Callable[[str, str], float]:
    """How like a reference a sentence is, from 0 to 100: (sentence, reference) → sentence BLEU of the orders that it has, or
    chrF, by sacreBLEU."""
    from sacrebleu.metrics import BLEU, CHRF

    metric: Any = CHRF(char_order=char_order, lowercase=lowercase)
    if name == "bleu":
        metric = BLEU(
            tokenize=tokenize, lowercase=lowercase, effective_order=True, force=tokenize == "none"
        )
    return lambda text, reference: metric.sentence_score(text, [reference]).score


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
