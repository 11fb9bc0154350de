"""Significance tests for score differences between systems and between configurations.

Tests over test sentences are sacreBLEU's paired tests (Koehn 2004; Riezler & Maxwell 2005). These
tests estimate whether a difference would hold for other sentences. The test over seeds is Tukey's
range test, which estimates whether a difference would hold for other seeds.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.foundation.extras import installed
from nmt.foundation.progress import waiting
from nmt.metric import Metric, reference_sets, reference_streams

LEVEL = 0.05
"""Significance level; a difference with a smaller p-value is significant."""


@dataclass(frozen=True)
class SignificanceResult:
    """Score of a system, and the significance of the difference from the first system.

    score: score of the system on the test set, in per cent
    confidence: half the width of the score's 95 % confidence interval over test sentences
    probabilities: p-values of the paired bootstrap test and, if it was run, of the approximate
        randomisation test, corrected for the number of comparisons by Holm's method; empty for
        the first system
    signature: sacreBLEU's signature with the settings of the bootstrap test
    """

    score: float
    confidence: float
    probabilities: Sequence[float]
    signature: str


def over_sentences(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    metric: Metric,
    name: str,
    *,
    samples: int,
    trials: int,
) -> dict[str, SignificanceResult]:
    """Tests over test sentences whether each system differs from the first system.

    systems: translations of each system
    references: sets of references, each with one reference per sentence; a missing reference is
        empty
    metric: metric options, such as `lowercase`
    name: metric to test: `bleu` or `chrf`
    samples: number of bootstrap samples
    trials: number of randomisation trials; 0 disables the test
    """
    from sacrebleu.significance import PairedTest

    scorer = metric.sacrebleu_metric(name, force=True)
    streams = reference_streams(reference_sets(references))
    tested = list(systems.items())  # the first system is the baseline
    if len(tested) == 1:
        # A single system is compared with itself, for the confidence interval of its score.
        tested *= 2
    kinds = {"bs": samples, "ar": trials} if trials else {"bs": samples}
    with waiting("testing differences"):
        outcomes = [
            PairedTest(tested, {"": scorer}, streams, test_type=kind, n_samples=count)()
            for kind, count in kinds.items()
        ]
    [(title, signature)] = outcomes[0][0].items()
    tests: list[list[Any]] = [results[title] for _, results in outcomes]  # one result per system
    probabilities = [(), *zip(*map(_chances, tests), strict=True)]
    return {
        system: SignificanceResult(
            score=tests[0][i].score,
            confidence=float(tests[0][i].ci),
            probabilities=probabilities[i],
            signature=str(signature),
        )
        for i, system in enumerate(systems)
    }


def _chances(results: Sequence[Any]) -> list[float]:
    """Returns the p-values of the differences from the first system, corrected by Holm's method.

    results: sacreBLEU's result of a test for each system
    """
    first, *others = results
    # For equal scores, sacreBLEU returns the p-value 1 / (samples + 1) instead of 1.
    return holm([1.0 if r.score == first.score else r.p_value for r in others])


def holm(values: Sequence[float]) -> list[float]:
    """Returns p-values corrected for multiple comparisons (Holm 1979)."""
    ascending = sorted(values)
    # The k-th smallest of n is multiplied by n - k + 1; the result never decreases.
    products = [min(1.0, p * (len(values) - rank)) for rank, p in enumerate(ascending)]
    corrected = dict(zip(ascending, itertools.accumulate(products, max), strict=True))
    return [corrected[value] for value in values]


def over_seeds(scores: Sequence[Sequence[float]]) -> list[float | None]:
    """Returns the p-value of each configuration by Tukey's range test over seeds.

    Each configuration is compared with the first configuration that has several seeds. The p-value
    is None for that configuration and for configurations with a single seed. All p-values are None
    if fewer than two configurations have several seeds, or if SciPy is not installed.

    scores: for each configuration, the score of each seed
    """
    several = [i for i, of_seeds in enumerate(scores) if len(of_seeds) > 1]
    chances: dict[int, float] = {}
    if all(statistics.pvariance(scores[i]) == 0 for i in several):
        # Without variance, the test is undefined; equal scores get the p-value 1.
        chances = {i: 1.0 for i in several[1:] if scores[i][0] == scores[several[0]][0]}
    elif len(several) > 1 and installed("scipy"):
        from scipy.stats import tukey_hsd

        tests = tukey_hsd(*(scores[i] for i in several)).pvalue[0]  # comparisons with the first
        chances = dict(zip(several[1:], map(float, tests[1:]), strict=True))
    return [chances.get(i) for i in range(len(scores))]


def as_spread(values: Sequence[float], digits: int = 2) -> str:
    """Returns values as text, mean ± sample standard deviation; "–" without values."""
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{deviation}"


def as_chances(*chances: float | None) -> str:
    """Returns p-values as text; "–" if all are None."""
    texts = ["< 0.001" if p < 0.001 else f"{p:.3f}" for p in chances if p is not None]
    return " · ".join(texts) or "–"


def as_largest(*chances: float) -> str:
    """Returns the largest p-value as text; "–" without p-values."""
    return as_chances(*sorted(chances)[-1:])


def names_of_tests(
    results: Sequence[SignificanceResult],
    second: str = " and approximate randomisation, the larger p-value",
) -> str:
    """Returns the names of the significance tests over test sentences, for the text about a table.

    results: results of the tests
    second: part of the text that is left out if the randomisation test was not run
    """
    has_trials = any(len(result.probabilities) > 1 for result in results)
    return f"paired bootstrap{second * has_trials}, corrected by Holm's method"


AGREEMENT = {"bleu": (88.33, 0.966), "chrf": (93.0, 1.114)}
"""Parameters (maximum in %, slope) of the sigmoid function from a score difference to the
percentage of human judgements that agree with the metric.

Kocmi et al. 2024 fitted the functions. The parameters are those of their program mt-thresholds.
"""


def agreement(metric: str, difference: float) -> float:
    """Returns the percentage of human judgements that agree with a metric (Kocmi et al. 2024).

    metric: `bleu` or `chrf`
    difference: score difference between two systems; for 0, the result is 50, the chance level
    """
    highest, slope = AGREEMENT[metric]
    return max(50.0, highest / (1 + math.exp(-slope * abs(difference))))
