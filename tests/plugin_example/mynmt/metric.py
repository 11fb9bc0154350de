"""Share of translations with as many words as the reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nmt.metric import Metric, Result


@dataclass(frozen=True, kw_only=True)
class WithLength(Metric):
    """The metrics of nmt, and `length`, in per cent. Higher is better."""

    name: Literal["length", "bleu", "chrf"] = "length"  # type: ignore[assignment]

    def score(
        self, hypotheses: Sequence[str], references: Sequence[str], *arguments: Any, **options: Any
    ) -> dict[str, Result]:
        results = super().score(hypotheses, references, *arguments, **options)
        pairs = list(zip(hypotheses, references, strict=True))
        equal = sum(len(ours.split()) == len(theirs.split()) for ours, theirs in pairs)
        return {**results, "length": Result(100 * equal / max(1, len(pairs)), "equal length")}
