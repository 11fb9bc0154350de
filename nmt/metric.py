"""Quality of translations against references, by sacreBLEU (Post 2018), on detokenised text, with signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nmt.foundation.ranges import Depth

MetricName = Literal["bleu", "chrf", "ter", "exact", "loss"]
LOWER_IS_BETTER = ("ter", "loss")


@dataclass(frozen=True)
class Result:
    """A score in per cent (TER may exceed 100) and the signature that says how it was computed."""

    score: float
    signature: str


class Metric:
    """How a run is judged. The metric `name` chooses the checkpoint, decides early stopping and is the objective of
    sweeps; BLEU, chrF and exact match are always reported. `tokenize` and `lowercase` are sacreBLEU's, for BLEU."""

    def __init__(
        self,
        *,
        name: MetricName = "bleu",
        tokenize: Literal[
            "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none", "flores101", "flores200"
        ] = "13a",
        lowercase: bool = False,
        char_order: Depth = 6,
    ) -> None:
        self.name, self.tokenize, self.lowercase, self.char_order = name, tokenize, lowercase, char_order

    def better(self, new: float, old: float | None) -> bool:
        """Whether `new` improves on `old`."""
        return old is None or (new < old if self.name in LOWER_IS_BETTER else new > old)

    def score(self, hypotheses: Sequence[str], references: Sequence[str], ter: bool = False) -> dict[str, Result]:
        """bleu, chrf and exact, and optionally ter, of aligned lines."""
        from sacrebleu.metrics import BLEU, CHRF, TER

        metrics = {
            "bleu": BLEU(tokenize=self.tokenize, lowercase=self.lowercase),
            "chrf": CHRF(char_order=self.char_order),
            **({"ter": TER()} if ter or self.name == "ter" else {}),
        }
        results = {}
        for name, metric in metrics.items():
            score = metric.corpus_score(list(hypotheses), [list(references)]).score
            results[name] = Result(score, str(metric.get_signature()))
        same = sum(h == r for h, r in zip(hypotheses, references, strict=True))
        results["exact"] = Result(100 * same / max(1, len(references)), "whole lines, case and spaces counted")
        return results
