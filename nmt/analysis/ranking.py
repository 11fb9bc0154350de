"""Ranking of configurations by final scores, with significance tests against the best
configuration.
"""

import logging
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nmt.analysis.run_results import Configuration, RunResult, configurations
from nmt.analysis.significance import (
    LEVEL,
    SignificanceResult,
    as_chances,
    as_largest,
    as_spread,
    names_of_tests,
    over_seeds,
    over_sentences,
)
from nmt.analysis.tables import (
    BOLD,
    ReportColumn,
    ReportTable,
    table_of,
    with_best,
    with_columns,
)
from nmt.foundation.extras import installed
from nmt.metric import TITLES, Metric

log = logging.getLogger(__name__)
COSTS = ("parameters", "tokens/s", "minutes", "MB")
"""Columns of costs, which the narrow table for papers contains only if they are selected."""
HEADS = {
    **TITLES,
    "exact": "exact match (%)",
    "n": "seeds",
    "loss": "loss (nats per token)",
    "p seeds": "p (seeds)",
    "p sentences": "p (sentences)",
    "tokens/s": "tokens per second",
    "minutes": "training (minutes)",
    "MB": "peak memory (MB)",
}
"""Maps columns of the ranking table to headings, where the heading differs from the column's
name.
"""
NAMES = {head: name for name, head in HEADS.items()}
"""Maps headings of the ranking table to the names of its columns."""
SEEDS = (
    "p (seeds) is the p-value over seeds: Tukey's range test against the best configuration with "
    "several seeds, corrected for all pairs."
)
"""Note below a table with the column `p seeds`."""
NO_SEEDS = "The significance test over seeds needs SciPy: pip install '.[sweep]'."
"""Note below a table that lacks the column `p seeds`, because SciPy is not installed."""
NO_SENTENCES = (
    "The tests over test sentences support only BLEU (metric=bleu) and chrF (metric=chrf)."
)
"""Note below a table that is ranked by a metric without significance tests over sentences."""
TESTED = ("bleu", "chrf")
"""Names of the metrics for which sacreBLEU's significance tests are run."""


@dataclass(frozen=True)
class Ranking:
    """Ranking of configurations by their scores on the same data set.

    part: data set of the scores, `test` or `validation`
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

        part: data set of the scores, `test` or `validation`
        runs: results of the training runs
        metric: name of the metric by which configurations are ranked
        samples: number of bootstrap samples of the tests over sentences
        trials: number of randomisation trials; 0 disables the test
        """
        ranked = configurations(runs, metric)
        seeds = over_seeds([row.scores(metric) for row in ranked]) or [None] * len(ranked)
        tests = _over_sentences(ranked, metric, samples, trials) if metric in TESTED else {}
        rows = [
            replace(row, over_sentences=tests.get(i), over_seeds=seeds[i])
            for i, row in enumerate(ranked)
        ]
        return cls(part, metric, rows)

    @property
    def runs(self) -> list[RunResult]:
        return [run for row in self.rows for run in row.runs]

    def mean(self, row: Configuration) -> float:
        """Returns the mean score of a configuration over its seeds; 0 without scores."""
        return statistics.fmean(row.scores(self.metric) or [0.0])

    def may_be_best(self, row: Configuration) -> bool:
        """Returns whether a configuration is the best, equal to the best, or not significantly
        worse.
        """
        best = self.mean(self.rows[0])
        score = self.mean(row)
        # If the best configuration has one run, the tests over seeds use another baseline.
        is_repeated = len(self.rows[0].runs) > 1
        chances = row.chances if is_repeated else row.sentence_chances
        return score == best or (bool(chances) and min(chances) > LEVEL)

    def table(self, names: Sequence[str] | None = None) -> ReportTable:
        """Returns a table with a row for each configuration.

        names: columns of the table by name or heading, in this order; None for all columns

        Raises UserError for an unknown column.
        """
        names = names and [NAMES.get(name, name) for name in names]
        keys = list(self.rows[0].values)
        # Translations of other systems have no other settings.
        identity = ["system"] if "system" in keys else keys
        if names and not {*identity} & {*names}:
            names = [*identity, *names]
        title = f"{self.part.capitalize()} scores"
        sorting = TITLES.get(self.metric, self.metric)
        table = self._table(f"{title}, sorted by {sorting}", names, as_chances)
        omitted = {*COSTS, "exact"} - {self.metric}
        names = names or [name for name in table.head if name not in omitted]
        paper = self._table(title, names, as_largest)
        caption = " ".join(self._caption(paper.head))
        paper = replace(paper, head=_headings(paper.head), note=caption)
        notes = " ".join(self._notes(table.head))
        heads = [HEADS.get(name, name) for name in table.head]
        return replace(table, head=heads, note=notes, paper=paper)

    def _table(
        self, title: str, names: Sequence[str] | None, p_values: Callable[..., str]
    ) -> ReportTable:
        """Returns the ranking table without notes.

        title: title of the table
        names: columns of the table, in this order; None for all columns
        p_values: function that converts the p-values over sentences to text
        """
        keys = list(self.rows[0].values)
        strong = [i for i, row in enumerate(self.rows) if self.may_be_best(row)]
        table = table_of(
            title,
            self._columns(keys, p_values),
            self.rows,
            keys=len(keys) or 1,
            strong=strong if len(self.rows) > 1 else [],
        )
        if names:
            table = with_columns(table, names)
        column = list(table.head).index(self.metric) if self.metric in table.head else None
        cells = [(row, column) for row in range(len(table.rows)) if column is not None]
        shares = with_best(table, [cells]).shares
        return replace(table, shares=shares)

    def _columns(
        self, keys: Sequence[str], p_values: Callable[..., str]
    ) -> list[ReportColumn[Configuration]]:
        """Returns all columns of the ranking table.

        keys: settings that differ between configurations
        p_values: function that converts the p-values over sentences to text
        """
        metrics = [
            name
            for name in self.rows[0].runs[0].scores
            if all(name in run.scores for run in self.runs)
        ]
        metrics.sort(key=lambda name: name != self.metric)
        return [
            *(ReportColumn(key, lambda row, key=key: row.values[key]) for key in keys),  # type: ignore[misc]
            ReportColumn("run", lambda row: row.label, not keys),
            ReportColumn("n", lambda row: str(len(row.runs))),
            *(
                ReportColumn(
                    name,
                    lambda row, name=name: as_spread(row.scores(name)),  # type: ignore[misc]
                    is_score=name == self.metric,
                )
                for name in metrics
            ),
            # A test without results has no column.
            ReportColumn("p seeds", lambda row: as_chances(row.over_seeds), self._has_seeds),
            ReportColumn(
                "p sentences", lambda row: p_values(*row.sentence_chances), self._has_sentences
            ),
            ReportColumn("parameters", lambda row: _figure(max, [r.parameters for r in row.runs])),
            ReportColumn(
                "tokens/s", lambda row: _figure(statistics.median, [r.speed for r in row.runs])
            ),
            ReportColumn("minutes", _minutes),
            ReportColumn(
                "MB",
                lambda row: _figure(max, [run.memory for run in row.runs]),
                any(run.memory for run in self.runs),
            ),
        ]

    @property
    def _has_seeds(self) -> bool:
        return any(row.over_seeds is not None for row in self.rows)

    @property
    def _has_sentences(self) -> bool:
        return any(row.sentence_chances for row in self.rows)

    @property
    def _is_tested(self) -> bool:
        return any(row.chances for row in self.rows)

    def _notes(self, columns: Collection[str]) -> list[str]:
        """Returns the notes below the ranking table, which explain its columns."""
        is_compared = len(self.rows) > 1 and self.metric in columns
        has_seeds = "p seeds" in columns
        bold = (
            "the best configuration, and configurations that no test separates from the best at "
            "the 5 % level."
            if self._is_tested
            else "the best configuration. No significance test was made, so any other "
            "configuration may be equally good."
        )
        return [
            *self._seeds(columns),
            *self._signatures(columns),
            *self._leaks(),
            *self._repeats(),
            *([f"{BOLD} {bold}"] if is_compared else []),
            *([SEEDS] if has_seeds else []),
            *([NO_SEEDS] if is_compared and not has_seeds and not installed("scipy") else []),
            *([NO_SENTENCES] if is_compared and self.metric not in TESTED else []),
            *(self._sentence_tests() if "p sentences" in columns else []),
        ]

    def _repeats(self) -> list[str]:
        """Returns a sentence that lists repeated runs (same configuration and seed); empty without
        repeats.
        """
        folders = [str(run.folder) for row in self.rows for run in row.repeats]
        repeats = "Repeats are left out, because another run has the same configuration and seed"
        return [f"{repeats}: {', '.join(folders)}."] if folders else []

    def _sentence_tests(self) -> list[str]:
        """Returns sentences about the significance tests over test sentences."""
        results = [row.over_sentences for row in self.rows if row.over_sentences]
        has_trials = any(result.randomization is not None for result in results)
        largest = max(result.confidence for result in results)
        return [
            f"p (sentences) is the p-value over test sentences: paired bootstrap"
            f"{' · approximate randomisation' if has_trials else ''}, corrected by Holm's "
            "method, for the seed with the best validation score. The 95 % confidence interval "
            f"of a score over sentences is ± {largest:.1f} or less."
        ]

    def _caption(self, columns: Collection[str]) -> list[str]:
        """Returns short explanations of the columns, for the caption of the paper table."""
        is_compared = len(self.rows) > 1 and self.metric in columns
        tested = (
            "and scores that no test separates from the best (5 %)"
            if self._is_tested
            else "untested"
        )
        results = [row.over_sentences for row in self.rows if row.over_sentences]
        return [
            *self._seeds(columns),
            *([f"Bold: the best, {tested}."] if is_compared else []),
            *(
                ["p seeds: Tukey's range test against the best with several seeds."]
                if "p seeds" in columns
                else []
            ),
            *([f"p sentences: {names_of_tests(results)}."] if "p sentences" in columns else []),
            *self._signatures(columns),
            *self._leaks(),
        ]

    def _leaks(self) -> list[str]:
        """Returns a sentence about test pairs in the training text; empty without such pairs."""
        counts = {run.leaked for run in self.runs if run.answers is None}
        if not any(counts):
            return []
        size = len(self.runs[0].lines(".reference") or [])
        number = f"{'Up to ' * (len(counts) > 1)}{max(counts):,}"
        return [
            f"{number} of {size:,} {self.part} pairs are also training pairs, which raises the "
            "scores."
        ]

    def _seeds(self, columns: Collection[str]) -> list[str]:
        """Returns sentences that explain the scores, with the number of seeds if the table has no
        column `n`.
        """
        counts = sorted({len(row.runs) for row in self.rows})
        extremes = dict.fromkeys([counts[0], counts[-1]])
        number = "the" if "n" in columns else " to ".join(map(str, extremes))
        if counts[-1] > 1:
            return [f"Scores are means ± sample standard deviations over {number} seeds."]
        return ["Scores are of one seed."] if "n" not in columns else []

    def _signatures(self, columns: Collection[str]) -> list[str]:
        """Returns a sentence with the sacreBLEU signature of each score in the ranking table."""
        signatures = self.runs[0].signatures
        texts = [
            f"{TITLES.get(name, name)} {signatures[name]}"
            for name in columns
            if signatures.get(name)
        ]
        return [f"Signatures: {'; '.join(texts)}."] if texts else []


def _headings(columns: Sequence[str]) -> list[str]:
    """Returns the headings of a paper table: titles of metrics, and the short names of settings."""
    names = [column.rpartition(".")[2] for column in columns]
    return [
        TITLES.get(column, name.replace("_", " ") if names.count(name) == 1 else column)
        for column, name in zip(columns, names, strict=True)
    ]


def _minutes(row: Configuration) -> str:
    # 0 seconds for translations by other tools
    seconds = statistics.fmean(run.seconds for run in row.runs)
    return f"{seconds / 60:.1f}" if seconds else "–"


def _figure(summary: Callable[[list[float]], float], values: Sequence[float | None]) -> str:
    figures = [value for value in values if value]
    return f"{summary(figures):,.0f}" if figures else "–"


def _over_sentences(
    ranked: Sequence[Configuration], metric: str, samples: int, trials: int
) -> dict[int, SignificanceResult]:
    """Tests the difference of each configuration from the best over test sentences.

    A configuration is represented by the seed with the best validation score. Returns the results
    by index of the configuration.

    ranked: configurations, the best first
    metric: metric to test, `bleu` or `chrf`
    samples: number of bootstrap samples
    trials: number of randomisation trials; 0 disables the test
    """
    systems: dict[str, list[str]] = {}
    references: list[str] = []
    for number, configuration in enumerate(ranked):
        run = configuration.best_by_validation()
        answers = run.lines() or []
        expected = run.lines(".reference") or []
        # Incomplete translations cannot be aligned with the reference.
        if answers and expected and len(answers) != len(expected):
            log.warning(
                "%s: %s.txt has %s lines, but the reference has %s; the run is left out of the "
                "test over sentences",
                run.folder,
                run.part,
                len(answers),
                len(expected),
            )
        # Paired tests need the same sentences.
        elif answers and expected and expected == (references or expected):
            references = expected
            systems[str(number)] = answers
    if "0" not in systems or len(systems) < 2:
        return {}
    judging_metric = metric_of(ranked[0].runs[0])
    results = over_sentences(
        systems, references, judging_metric, metric, samples=samples, trials=trials
    )
    return {int(number): result for number, result in results.items()}


def metric_of(run: RunResult) -> Metric:
    """Returns the metric with the options of a run, reconstructed from a score's signature."""
    entries = run.signatures.get("bleu", "").split("|")
    options = dict(entry.split(":", 1) for entry in entries if ":" in entry)
    tokenize: Any = options.get("tok", "13a")  # sacreBLEU's default
    return Metric(tokenize=tokenize, lowercase=options.get("case") == "lc")
