"""Ranking of configurations by their final scores, with the probability that a difference from the
best is chance."""

import logging
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nmt.analysis.run_results import Configuration, RunResult, configurations
from nmt.analysis.significance import (
    LEVEL,
    SignificanceResult,
    as_chances,
    as_spread,
    over_seeds,
    over_sentences,
)
from nmt.analysis.tables import ReportColumn, ReportTable, table_of
from nmt.foundation.extras import installed
from nmt.metric import Metric

log = logging.getLogger(__name__)
TESTED = ("bleu", "chrf")
"""Metrics of sacreBLEU's tests."""


@dataclass(frozen=True)
class Ranking:
    """Configurations whose scores are of the same part of the data, the best first.

    part: test or validation
    metric: the score that ranks them
    rows: the configurations
    """

    part: str
    metric: str
    rows: Sequence[Configuration]

    @classmethod
    def of(
        cls, part: str, runs: Sequence[RunResult], metric: str, samples: int, trials: int
    ) -> "Ranking":
        ranked = configurations(runs, metric)
        seeds = over_seeds([configuration.scores(metric) for configuration in ranked])
        tests = {}
        if metric in TESTED:
            tests = _over_sentences(ranked, metric, samples, trials)
        rows = [
            replace(
                configuration, over_sentences=tests.get(i), over_seeds=seeds[i] if seeds else None
            )
            for i, configuration in enumerate(ranked)
        ]
        return cls(part, metric, rows)

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

    def may_be_best(self, row: Configuration) -> bool:
        """Returns whether no test separates a configuration from the best, or their scores are
        equal."""
        best, scores = (
            statistics.fmean(ranked.scores(self.metric) or [0.0]) for ranked in (self.rows[0], row)
        )
        are_chance = bool(row.chances) and all(p > LEVEL for p in row.chances)
        return row is self.rows[0] or best == scores or are_chance

    def table(self) -> ReportTable:
        """A row for each configuration."""
        first = self.rows[0]
        metrics = [
            name for name in first.runs[0].scores if all(name in r.scores for r in self.runs)
        ]
        metrics.sort(key=lambda name: name != self.metric)
        keys = first.values
        columns: list[ReportColumn[Configuration]] = [
            ReportColumn(key, partial(_value, key)) for key in keys
        ]
        if not keys:
            columns.append(ReportColumn("run", lambda row: row.label))
        columns.append(ReportColumn("n", lambda row: str(len(row.runs))))
        columns += [ReportColumn(name, partial(_spread, name)) for name in metrics]
        # A test that could not be made has no column.
        columns += [
            ReportColumn("p seeds", lambda row: as_chances(row.over_seeds), self._has_seeds),
            ReportColumn("p sentences", _sentence_chances, self._has_sentences),
            ReportColumn(
                "parameters", lambda row: _figure(max, (run.parameters for run in row.runs))
            ),
            ReportColumn(
                "tokens/s", lambda row: _figure(statistics.median, (r.speed for r in row.runs))
            ),
            ReportColumn(
                "minutes", lambda row: f"{statistics.fmean(r.seconds for r in row.runs) / 60:.1f}"
            ),
            ReportColumn(
                "MB",
                lambda row: _figure(max, (run.memory for run in row.runs)),
                any(run.memory for run in self.runs),
            ),
        ]
        strong = [i for i, row in enumerate(self.rows) if self.may_be_best(row)]
        return table_of(
            f"{self.part.capitalize()} scores by {self.metric}",
            columns,
            self.rows,
            keys=len(keys) or 1,
            strong=strong if len(self.rows) > 1 else [],
            note=" ".join(self._notes()),
        )

    @property
    def _has_seeds(self) -> bool:
        return any(row.over_seeds is not None for row in self.rows)

    @property
    def _has_sentences(self) -> bool:
        return any(row.over_sentences and row.over_sentences.probabilities for row in self.rows)

    def _notes(self) -> list[str]:
        """Explanations of the columns of the table."""
        notes = [f"{self.metric}: {self.runs[0].signatures.get(self.metric, '')}."]
        if any(len(row.runs) > 1 for row in self.rows):
            notes.append("Scores are means ± sample standard deviations over n seeds.")
        if len(self.rows) > 1:
            notes.append("Bold (or *): the best, and what no test tells from it at the 5 % level.")
        if self._has_seeds:
            question = "would other seeds turn it round?"
            notes.append(f"p seeds: {question} Tukey's range test, corrected for all pairs.")
        elif len(self.rows) > 1 and not installed("scipy"):
            notes.append("The test over seeds needs SciPy: pip install '.[sweep]'.")
        if self._has_sentences:
            results = [row.over_sentences for row in self.rows if row.over_sentences]
            tests = "paired bootstrap"
            if any(result.randomization is not None for result in results):
                tests += " · approximate randomisation"
            largest = max(result.confidence for result in results)
            notes.append(
                f"p sentences: would other test sentences? {tests} of the seeds that validation "
                "chose, corrected by Holm's method; scores of one seed are certain to "
                f"± {largest:.1f} or better over sentences (95 %)."
            )
        return notes


def _value(key: str, row: Configuration) -> str:
    return row.values[key]


def _spread(metric: str, row: Configuration) -> str:
    return as_spread(row.scores(metric))


def _sentence_chances(row: Configuration) -> str:
    return as_chances(*(row.over_sentences.probabilities if row.over_sentences else []))


def _figure(summary: Callable[[list[float]], float], values: Iterable[float | None]) -> str:
    figures = [value for value in values if value]
    return f"{summary(figures):,.0f}" if figures else "–"


def _over_sentences(
    ranked: Sequence[Configuration], metric: str, samples: int, trials: int
) -> dict[int, SignificanceResult]:
    """Each configuration against the best by its number, on the same test sentences, for the seed
    that validation chose."""
    systems: dict[str, list[str]] = {}
    references: list[str] = []
    for number, configuration in enumerate(ranked):
        run = configuration.best_by_validation()
        answers = run.lines()
        expected = run.lines(".reference")
        if answers is None or expected is None:
            continue
        # Translations that were cut, by hand or by a full disk, cannot be aligned.
        if len(answers) != len(expected):
            log.warning(
                "%s: %s.txt has %s lines, its reference %s; left out of the test over sentences",
                run.folder,
                run.part,
                len(answers),
                len(expected),
            )
            continue
        # Paired tests need the same sentences.
        references = references or expected
        if references == expected:
            systems[str(number)] = answers
    if "0" not in systems or len(systems) < 2:
        return {}
    judge = judge_of(ranked[0].runs[0])
    results = over_sentences(systems, references, judge, metric, samples=samples, trials=trials)
    return {int(number): result for number, result in results.items()}


def judge_of(run: RunResult) -> Metric:
    """The metric of a run, by the signature of its scores."""
    entries = run.signatures.get("bleu", "").split("|")
    options = dict(entry.split(":", 1) for entry in entries if ":" in entry)
    tokenize: Any = options.get("tok", "13a")
    return Metric(tokenize=tokenize, lowercase=options.get("case") == "lc")
