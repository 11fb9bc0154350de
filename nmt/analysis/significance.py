"""Significance tests for score differences between systems and between configurations.

Tests over test sentences are sacreBLEU's paired tests (Koehn 2004; Riezler & Maxwell 2005). These
tests estimate whether a difference would hold for other sentences. The test over seeds is Tukey's
range test. The test over seeds estimates whether a difference would hold for other seeds.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.foundation.extras import installed
from nmt.foundation.progress import waiting
from nmt.metric import Metric

LEVEL = 0.05
"""Significance level; a difference with a smaller p-value is significant."""


@dataclass(frozen=True)
class SignificanceResult:
    """Score of a system, and the significance of the difference from the first system.

    score: score of the system on the test set, in per cent
    confidence: half the width of the score's 95 % confidence interval over test sentences
    bootstrap: p-value of the paired bootstrap test; None for the first system
    randomization: p-value of the approximate randomisation test; None for the first system or
        without a test
    signature: sacreBLEU's signature with the settings of the test

    Both p-values are corrected for the number of comparisons by Holm's method.
    """

    score: float
    confidence: float
    bootstrap: float | None
    randomization: float | None
    signature: str

    @property
    def probabilities(self) -> list[float]:
        """P-values of the bootstrap and randomisation tests; empty for the first system."""
        return [p for p in (self.bootstrap, self.randomization) if p is not None]


def over_sentences(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    metric: Metric,
    name: str,
    *,
    samples: int,
    trials: int,
) -> dict[str, SignificanceResult]:
    """Tests the difference of each system from the first system over test sentences.

    systems: translations of each system
    references: reference translation of each sentence
    metric: metric options, such as `lowercase`
    name: metric to test, `bleu` or `chrf`
    samples: number of bootstrap samples
    trials: number of randomisation trials; 0 disables the test
    """
    from sacrebleu.metrics import BLEU, CHRF

    scorer: Any = CHRF(char_order=metric.char_order, lowercase=metric.lowercase)
    if name == "bleu":
        scorer = BLEU(tokenize=metric.tokenize, lowercase=metric.lowercase, force=True)
    tested = list(systems.items())  # the first system is the baseline
    if len(tested) == 1:
        # A single system is compared with itself, for the confidence interval of its score.
        tested *= 2
    with waiting("testing differences"):
        results, signature = _paired_tests(tested, references, scorer, "bs", samples)
        bootstraps = _chances(results)
        randomizations: list[float | None] = [None] * len(results)
        if trials:
            trial_results, _ = _paired_tests(tested, references, scorer, "ar", trials)
            randomizations = _chances(trial_results)
    return {
        system: SignificanceResult(
            score=results[i].score,
            confidence=float(results[i].ci),
            bootstrap=bootstraps[i],
            randomization=randomizations[i],
            signature=signature,
        )
        for i, system in enumerate(systems)
    }


def _paired_tests(
    systems: list[tuple[str, Sequence[str]]],
    references: Sequence[str],
    metric: Any,
    kind: str,
    samples: int,
) -> tuple[list[Any], str]:
    """Returns the results of sacreBLEU's paired test, and the signature of the test.

    systems: names and translations; the first system is the baseline
    references: reference translation of each sentence
    metric: metric of sacreBLEU
    kind: `bs` (bootstrap) or `ar` (approximate randomisation)
    samples: number of samples or trials
    """
    from sacrebleu.significance import PairedTest

    test = PairedTest(systems, {"": metric}, [list(references)], test_type=kind, n_samples=samples)
    signatures, scores = test()
    [name] = signatures
    return scores[name], str(signatures[name])


def _chances(results: Sequence[Any]) -> list[float | None]:
    """Returns p-values of the differences from the first system, corrected by Holm's method.

    The value of the first system is None.
    """
    first, *others = results
    # For equal scores, sacreBLEU returns the p-value 1 / (samples + 1) instead of 1.
    return [None, *holm([1.0 if r.score == first.score else r.p_value for r in others])]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Returns p-values corrected for multiple comparisons (Holm 1979); None stays None."""
    ascending = sorted((value, i) for i, value in enumerate(values) if value is not None)
    corrected = list(values)
    # The k-th smallest of n is multiplied by n - k + 1; the result never decreases.
    largest = 0.0
    for rank, (value, i) in enumerate(ascending):
        largest = max(largest, min(1.0, value * (len(ascending) - rank)))
        corrected[i] = largest
    return corrected


def over_seeds(scores: Sequence[Sequence[float]]) -> list[float | None] | None:
    """Returns the p-value of each configuration by Tukey's range test over seeds.

    The test compares with the first configuration that has several seeds. The p-value is None for
    this configuration and for configurations with a single seed. Returns None if fewer than two
    configurations have several seeds, or SciPy is not installed.

    scores: for each configuration, the score of each seed
    """
    several = [i for i, of_seeds in enumerate(scores) if len(of_seeds) > 1]
    if len(several) < 2 or not installed("scipy"):
        return None
    if all(statistics.pvariance(scores[i]) == 0 for i in several):
        # Without variance, the test is undefined; equal scores get the p-value 1.
        first = several[0]
        return [
            1.0 if i != first and values == scores[first] else None
            for i, values in enumerate(scores)
        ]
    from scipy.stats import tukey_hsd

    # p-values of the comparisons with the first configuration
    p_values = tukey_hsd(*(scores[i] for i in several)).pvalue[0]
    chances: list[float | None] = [None] * len(scores)
    for i, p_value in zip(several[1:], p_values[1:], strict=True):
        chances[i] = float(p_value)
    return chances


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


def names_of_tests(results: Sequence[SignificanceResult]) -> str:
    """Returns the names of the significance tests over sentences, for the caption of a table."""
    tests = "paired bootstrap"
    if any(result.randomization is not None for result in results):
        tests += " and approximate randomisation, the larger p-value"
    return f"{tests}, corrected by Holm's method"


AGREEMENT = {"bleu": (88.33, 0.966), "chrf": (93.0, 1.114)}
"""Parameters (maximum in %, slope) of the curves of Kocmi et al. 2024, from their mt-thresholds."""


def agreement(metric: str, difference: float) -> float | None:
    """Returns the percentage of human judgements that agree with a metric (Kocmi et al. 2024).

    metric: `bleu` or `chrf`; the result is None for other metrics
    difference: score difference of two systems; for 0, the result is 50, the chance level
    """
    if metric not in AGREEMENT:
        return None
    highest, slope = AGREEMENT[metric]
    return max(50.0, highest / (1 + math.exp(-slope * abs(difference))))
