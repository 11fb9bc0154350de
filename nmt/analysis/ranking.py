"""Ranking of configurations by final scores, with significance tests against the best
configuration.
"""

import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nmt.analysis.run_groups import Configuration, configurations
from nmt.analysis.run_results import RunResult, is_lower_better
from nmt.analysis.significance import (
    LEVEL,
    SignificanceResult,
    as_chances,
    as_largest,
    as_spread,
    over_seeds,
    over_sentences,
)
from nmt.metric import TITLES

log = logging.getLogger(__name__)
TESTED = ("bleu", "chrf")
"""Names of the metrics for which sacreBLEU's significance tests are run."""

SAMPLES_PER_COMPARISON = 40
"""Minimum number of samples of a significance test per compared configuration."""


@dataclass(frozen=True)
class Ranking:
    """Ranking of configurations by their scores on the same data set.

    part: data set of the scores: "test" or "validation"
    metric: name of the metric by which configurations are ranked
    rows: configurations, the best first
    """

    part: str
    metric: str
    rows: Sequence[Configuration]

    @classmethod
    def of(
        cls, part: str, runs: Sequence[RunResult], metric: str, samples: int, trials: int
    ) -> "Ranking":
        """Ranks runs and tests their differences from the best configuration.

        part: data set of the scores: "test" or "validation"
        runs: results of the training runs
        metric: name of the metric by which configurations are ranked
        samples: number of bootstrap samples of the tests over test sentences
        trials: number of randomisation trials; 0 disables the test
        """
        ranked = configurations(runs, metric)
        seeds = over_seeds([row.scores(metric) for row in ranked])
        tests = _over_sentences(ranked, metric, samples, trials) if metric in TESTED else {}
        rows = [
            replace(row, over_sentences=tests.get(str(i)), over_seeds=seeds[i])
            for i, row in enumerate(ranked)
        ]
        return cls(part, metric, rows)

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

    def mean(self, row: Configuration) -> float:
        """Returns the mean score of a configuration over its seeds."""
        return statistics.fmean(row.scores(self.metric))

    def may_be_best(self, row: Configuration) -> bool:
        """Returns True if a configuration has the best score, or a score that is not significantly
        worse than the best score."""
        is_equal = self.mean(row) == self.mean(self.rows[0])
        return is_equal or min(self.chances(row), default=0.0) > LEVEL

    def chances(self, row: Configuration) -> Sequence[float]:
        """Returns the p-values of a configuration's difference from the best configuration: the
        larger p-value of the tests over sentences, and that over seeds."""
        largest = sorted(row.sentence_chances)[-1:]
        # If the best configuration has one run, the tests over seeds use another baseline.
        if row.over_seeds is None or len(self.rows[0].runs) == 1:
            return largest
        return [*largest, row.over_seeds]

    @property
    def is_tested(self) -> bool:
        """Whether any difference from the best configuration was tested."""
        return any(self.chances(row) for row in self.rows)

    @property
    def sentence(self) -> str:
        """Sentence about the best configuration, and how much better its score is than that of the
        worst configuration.
        """
        best, *others = self.rows
        unit = TITLES.get(self.metric, self.metric)
        digits = 4 if self.metric.endswith("loss") else 1  # losses are small numbers
        score = f"{as_spread(best.scores(self.metric), digits)} {unit} on the {self.part} set"
        if not others:
            return f"{best.label}: {score}."
        if len({round(self.mean(row), digits + 1) for row in self.rows}) == 1:
            return f"All {len(self.rows)} configurations have the same score: {score}."
        similar = [row for row in others if self.may_be_best(row)]
        names = similar[0].label if len(similar) == 1 else f"{len(similar)} other configurations"
        equal = f", not distinguishable from {names}" if similar else ""
        sentence = f"{best.label} is best: {score}{equal}"
        if len(similar) == len(others):
            return f"{sentence}."
        worst = [row for row in others if not self.may_be_best(row)][-1]
        direction = "higher" if is_lower_better(self.runs, self.metric) else "lower"
        gap = abs(self.mean(best) - self.mean(worst))
        return (
            f"{sentence}; {worst.label} is {gap:.{digits}f} {direction} ({_p_values(best, worst)})."
        )


def _p_values(best: Configuration, worst: Configuration) -> str:
    """Returns the p-values of the difference between two configurations, over seeds and over
    sentences.
    """
    texts = []
    # The test over seeds has another baseline if the best configuration has a single run.
    if worst.over_seeds is not None and len(best.runs) > 1:
        texts.append(f"p = {as_chances(worst.over_seeds)} over seeds")
    if worst.sentence_chances:
        is_one_of_several = max(len(best.runs), len(worst.runs)) > 1
        seeds = " with one seed of each" if is_one_of_several else ""
        texts.append(f"p = {as_largest(*worst.sentence_chances)} over sentences{seeds}")
    return ", ".join(texts).replace("= <", "<") or "not tested"


def _over_sentences(
    ranked: Sequence[Configuration], metric: str, samples: int, trials: int
) -> dict[str, SignificanceResult]:
    """Tests whether the score of each configuration differs from that of the best configuration.

    The tests are over the test sentences. They use one run of each configuration: the seed with the
    best validation score. Returns the results by index of the configuration, as text.

    ranked: configurations, the best first
    metric: metric to test: `bleu` or `chrf`
    samples: number of bootstrap samples
    trials: number of randomisation trials; 0 disables the test
    """
    systems: dict[str, list[str]] = {}
    references: list[list[str]] = []
    if len({run.scorer for configuration in ranked for run in configuration.runs}) > 1:
        log.warning(
            "the runs were scored with different settings of the metric, so their scores cannot be "
            "compared; the paired significance test is left out"
        )
        return {}
    for number, configuration in enumerate(ranked):
        run = configuration.best_by_validation()
        answers = run.lines()
        expected = run.references
        # Incomplete translations cannot be aligned with the reference.
        if answers and expected and len(answers) != len(expected[0]):
            log.warning(
                "%s: %s.txt has %s lines, but the reference has %s; the run is left out of the "
                "paired significance test, which compares sentence by sentence",
                run.folder,
                run.part,
                len(answers),
                len(expected[0]),
            )
        # Paired tests need the same sentences.
        elif answers and expected and expected == (references or expected):
            references = expected
            systems[str(number)] = answers
    if "0" not in systems or len(systems) < 2:
        return {}
    scorer = ranked[0].runs[0].scorer
    # The smallest p-value of a test is 1 / (samples + 1). Holm's method multiplies it by the number
    # of comparisons, so more of them need more samples.
    least = SAMPLES_PER_COMPARISON * (len(systems) - 1)
    samples = max(samples, least)
    trials = max(trials, least) if trials else 0
    return over_sentences(systems, references, scorer, metric, samples=samples, trials=trials)
