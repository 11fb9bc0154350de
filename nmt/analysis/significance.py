"""Whether a difference may be chance: over test sentences, by sacreBLEU's paired tests (Koehn 2004; Riezler & Maxwell 2005);
over seeds, by Tukey's range test. The two are different questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nmt.foundation.extras import installed
from nmt.foundation.progress import Progress
from nmt.metric import Metric

LEVEL = 0.05
"""Probability below which a difference counts as more than chance."""
SEED = 12345
"""Of the samples of sentences."""


@dataclass(frozen=True)
class SignificanceResult:
    """One system against the first: its score; half the width of the score's 95 % confidence interval over test sentences;
    and the probabilities, by paired bootstrap and by approximate randomisation, that a difference as large comes by
    chance (None for the first system), corrected for the number of comparisons by Holm's method."""

    score: float
    confidence: float
    bootstrap: float | None
    randomization: float | None
    signature: str


def over_sentences(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    metric: Metric,
    name: str,
    *,
    samples: int,
    trials: int,
) -> dict[str, SignificanceResult]:
    """The first of the systems against each other one. `name`: bleu or chrf; `samples`: of the bootstrap; `trials`: of the
    randomisation (0: none)."""
    from sacrebleu.metrics import BLEU, CHRF

    made = (
        BLEU(tokenize=metric.tokenize, lowercase=metric.lowercase)
        if name == "bleu"
        else CHRF(char_order=metric.char_order, lowercase=metric.lowercase)
    )
    first, *others = systems
    found = dict[str, tuple[float, float, float | None, float | None, str]]()
    with Progress("testing differences", max(1, len(others)), "systems") as step:
        for other in others or [first]:
            pair = [(first, list(systems[first])), (other, list(systems[other]))]
            boot, signature = _test(pair, references, made, "bs", samples)
            random = _test(pair, references, made, "ar", trials)[0] if trials else None
            found.setdefault(first, (boot[0].score, float(boot[0].ci), None, None, signature))
            if other != first:
                found[other] = (
                    boot[1].score, float(boot[1].ci), boot[1].p_value, random[1].p_value if random else None, signature,
                )  # fmt: skip
            step()
    boots = holm([found[other][2] for other in others])
    randoms = holm([found[other][3] for other in others])
    corrected = {
        first: (None, None),
        **{o: (b, r) for o, b, r in zip(others, boots, randoms, strict=True)},
    }
    return {
        each: SignificanceResult(score, ci, *corrected[each], signature)
        for each, (score, ci, _, _, signature) in found.items()
    }


def _test(pair, references, metric, kind, samples):  # type: ignore[no-untyped-def]
    """Results of both systems, and the signature with the test's settings."""
    from sacrebleu.significance import PairedTest

    test = PairedTest(
        pair, {"metric": metric}, [list(references)], test_type=kind, n_samples=samples
    )
    signatures, scores = test()
    [name] = [key for key in scores if key != "System"]
    return scores[name], str(signatures[name])


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Probabilities corrected for their number (Holm 1979); None stays None."""
    known = sorted((value, i) for i, value in enumerate(values) if value is not None)
    found, most = list[float | None](values), 0.0
    for rank, (value, i) in enumerate(known):
        most = max(most, min(1.0, value * (len(known) - rank)))
        found[i] = most
    return found


def over_seeds(scores: Sequence[Sequence[float]]) -> list[float | None] | None:
    """For each configuration, the probability that it differs as much from the first by chance, by Tukey's range test
    over all pairs; None for one with a single seed. None if there are too few, or SciPy is not installed."""
    usable = [i for i, each in enumerate(scores) if len(each) > 1]
    if len(usable) < 2 or usable[0] != 0 or not installed("scipy"):
        return None
    from scipy.stats import tukey_hsd

    spread = sum(
        sum((x - sum(each) / len(each)) ** 2 for x in each) for each in (scores[i] for i in usable)
    )
    if spread == 0:
        return [None for _ in scores]
    values = tukey_hsd(*(scores[i] for i in usable)).pvalue
    found: list[float | None] = [None] * len(scores)
    for place, i in enumerate(usable):
        found[i] = float(values[0, place]) if place else None
    return found


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the sample standard deviation if there are two or more."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


AGREEMENT = {"bleu": (88.33, 0.966), "chrf": (93.0, 1.114)}
"""Parameters of the curves of Kocmi et al. 2024, as in their package mt-thresholds."""


def agreement(metric: str, difference: float) -> float | None:
    """In what share of comparisons (per cent) people agree with a metric that tells two systems apart by `difference`; 50 is
    a coin (Kocmi et al. 2024). None for metrics that they give no curve for."""
    if metric not in AGREEMENT:
        return None
    most, slope = AGREEMENT[metric]
    return max(50.0, most / (1 + math.exp(-slope * abs(difference))))
