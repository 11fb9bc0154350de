"""Ranking of configurations by final scores, with significance tests against the best
configuration.
"""

import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nmt.analysis.run_results import Configuration, RunResult, configurations, is_lower_better
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
from nmt.analysis.tables import BOLD, ReportTable, with_best
from nmt.foundation.errors import UserError
from nmt.foundation.extras import installed
from nmt.metric import TITLES, Metric

log = logging.getLogger(__name__)
COSTS = ("parameters", "tokens/s", "minutes", "MB")
"""Columns of costs. The LaTeX table contains them only if they are selected."""
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

    @property
    def sentence(self) -> str:
        """Sentence about the best configuration, and how much better its score is than that of the
        worst configuration.
        """
        best, *others = self.rows
        unit = TITLES.get(self.metric, self.metric)
        score = f"{as_spread(best.scores(self.metric), 1)} {unit} on the {self.part} set"
        if not others:
            return f"{best.label if best.values else best.runs[0].folder.name}: {score}."
        if len({f"{self.mean(row):.2f}" for row in self.rows}) == 1:
            return f"All {len(self.rows)} configurations have the same score: {score}."
        similar = [row for row in others if self.may_be_best(row)]
        names = similar[0].label if len(similar) == 1 else f"{len(similar)} other configurations"
        equal = f", not distinguishable from {names}" if similar else ""
        sentence = f"{best.label} is best: {score}{equal}"
        if len(similar) == len(others):
            return f"{sentence}."
        worst = others[-1]
        direction = "higher" if is_lower_better(self.runs, self.metric) else "lower"
        gap = abs(self.mean(best) - self.mean(worst))
        return f"{sentence}; {worst.label} is {gap:.1f} {direction} ({_p_values(best, worst)})."

    def table(self, names: Sequence[str] | None = None) -> ReportTable:
        """Returns a table with a row for each configuration.

        names: columns of the table by name or heading, in this order; None for all columns

        Raises UserError for an unknown column.
        """
        columns = self._columns(as_chances)
        in_table = self._selected(names, [*columns])
        omitted = {*COSTS, "exact"} - {self.metric}
        in_paper = in_table if names else [name for name in in_table if name not in omitted]
        title = f"{self.part.capitalize()} scores"
        paper = self._table(
            title,
            self._columns(as_largest),
            in_paper,
            head=_headings(in_paper),
            note=self._caption(in_paper),
        )
        table = self._table(
            f"{title}, sorted by {TITLES.get(self.metric, self.metric)}",
            columns,
            in_table,
            head=[HEADS.get(name, name) for name in in_table],
            note=self._notes(in_table),
        )
        return replace(table, paper=paper)

    def _selected(self, names: Sequence[str] | None, available: Sequence[str]) -> Sequence[str]:
        """Returns the columns of the ranking table by name.

        names: columns by name or heading; None for all columns
        available: names of all columns

        Raises UserError for an unknown column.
        """
        if not names:
            return available
        selected = [NAMES.get(name, name) for name in names]
        keys = list(self.rows[0].values)
        needed = keys
        is_missing = not {*keys} & {*selected}
        if "system" in keys:
            # Rows of other systems have only a name, and rows of nmt differ in their settings.
            num_names = len({row.values["system"] for row in self.rows})
            has_settings = num_names == len(self.rows) or {*keys[1:]} & {*selected}
            needed = ["system"] if has_settings else keys
            is_missing = not {*needed} <= {*selected}
        if is_missing:
            selected = [*needed, *(name for name in selected if name not in needed)]
        unknown = [name for name in selected if name not in available]
        if unknown:
            raise UserError(
                f"columns=[{','.join(selected)}]: column {unknown[0]} not found; available: "
                f"{', '.join(available)}"
            )
        return selected

    def _table(
        self,
        title: str,
        columns: Mapping[str, Sequence[str]],
        names: Sequence[str],
        head: Sequence[str],
        note: str,
    ) -> ReportTable:
        """Returns the ranking table.

        title: title of the table
        columns: cells of each column, by name
        names: columns of the table, in this order
        head: heading of each column of the table
        note: explanation below the table
        """
        is_compared = self._is_compared(names)
        cells = [(i, names.index(self.metric)) for i in range(len(self.rows)) if is_compared]
        bold = [cell for cell in cells if self.may_be_best(self.rows[cell[0]])]
        keys = self.rows[0].values.keys() | {"run"}
        table = ReportTable(
            title,
            head,
            rows=list(zip(*(columns[name] for name in names), strict=True)),
            keys=sum(name in keys for name in names),
            note=note,
        )
        return replace(with_best(table, [cells]), bold=bold)

    def _is_compared(self, columns: Sequence[str]) -> bool:
        """Returns whether a table compares the scores of several configurations."""
        return len(self.rows) > 1 and self.metric in columns

    def _columns(self, p_values: Callable[..., str]) -> dict[str, list[str]]:
        """Returns the cells of each non-empty column of the ranking table, by column name.

        p_values: function that converts the p-values over sentences to text
        """
        rows = self.rows
        settings = {key: [row.values[key] for row in rows] for key in rows[0].values}
        metrics = [
            name for name in self.runs[0].scores if all(name in run.scores for run in self.runs)
        ]
        metrics.sort(key=lambda name: name != self.metric)
        columns = {
            **(settings or {"run": [row.label for row in rows]}),
            "n": [str(len(row.runs)) for row in rows],
            **{name: [as_spread(row.scores(name)) for row in rows] for name in metrics},
            "p seeds": [as_chances(row.over_seeds) for row in rows],
            "p sentences": [p_values(*row.sentence_chances) for row in rows],
            "parameters": [_cost(row, "parameters") for row in rows],
            "tokens/s": [_cost(row, "speed", statistics.median) for row in rows],
            "minutes": [_cost(row, "minutes", statistics.fmean, digits=1) for row in rows],
            "MB": [_cost(row, "memory") for row in rows],
        }
        return {name: cells for name, cells in columns.items() if {*cells} != {"–"}}

    @property
    def _is_tested(self) -> bool:
        return any(row.chances for row in self.rows)

    def _notes(self, columns: Sequence[str]) -> str:
        """Returns the notes below the ranking table, which explain its columns."""
        is_compared = self._is_compared(columns)
        has_seeds = "p seeds" in columns
        bold = (
            "the best configuration, and configurations that no test separates from the best at "
            "the 5 % level."
            if self._is_tested
            else "the best configuration. No significance test was made, so any other "
            "configuration may be equally good."
        )
        notes = [
            self._seeds(columns),
            self._signatures(columns),
            self._leaks(),
            self._repeats(),
            f"{BOLD} {bold}" if is_compared else "",
            "p (seeds) is the p-value over seeds: Tukey's range test against the best configuration "
            "with several seeds, corrected for all pairs."
            if has_seeds
            else "",
            "The significance test over seeds needs SciPy: pip install '.[sweep]'."
            if is_compared and not has_seeds and not installed("scipy")
            else "",
            "The tests over test sentences support only BLEU (metric=bleu) and chrF (metric=chrf)."
            if is_compared and self.metric not in TESTED
            else "",
            self._sentence_tests() if "p sentences" in columns else "",
        ]
        return " ".join(filter(None, notes))

    def _repeats(self) -> str:
        """Returns a sentence that lists repeated runs (same configuration and seed); empty without
        repeats.
        """
        folders = [str(run.folder) for row in self.rows for run in row.repeats]
        repeats = "Repeats are left out, because another run has the same configuration and seed"
        return f"{repeats}: {', '.join(folders)}." if folders else ""

    def _sentence_tests(self) -> str:
        """Returns sentences about the significance tests over test sentences."""
        results = [row.over_sentences for row in self.rows if row.over_sentences]
        has_trials = any(len(result.probabilities) > 1 for result in results)
        largest = max(result.confidence for result in results)
        return (
            f"p (sentences) is the p-value over test sentences: paired bootstrap"
            f"{' · approximate randomisation' if has_trials else ''}, corrected by Holm's "
            "method, for the seed with the best validation score. The 95 % confidence interval "
            f"of a score over sentences is ± {largest:.1f} or less."
        )

    def _caption(self, columns: Sequence[str]) -> str:
        """Returns short explanations of the columns, for the caption of the LaTeX table."""
        separated = "and scores that no test separates from the best (5 %)"
        tested = separated if self._is_tested else "untested"
        over_seeds = "p seeds: Tukey's range test against the best with several seeds."
        results = [row.over_sentences for row in self.rows if row.over_sentences]
        explanations = [
            self._seeds(columns),
            f"Bold: the best, {tested}." if self._is_compared(columns) else "",
            over_seeds if "p seeds" in columns else "",
            f"p sentences: {names_of_tests(results)}." if "p sentences" in columns else "",
            self._signatures(columns),
            self._leaks(),
        ]
        return " ".join(filter(None, explanations))

    def _leaks(self) -> str:
        """Returns a sentence about test pairs in the training text; empty without such pairs."""
        counts = {run.leaked for run in self.runs if run.answers is None}
        if not any(counts):
            return ""
        size = len(self.runs[0].lines(".reference"))
        number = f"{'Up to ' * (len(counts) > 1)}{max(counts):,}"
        return (
            f"{number} of {size:,} {self.part} pairs are also training pairs, which raises the "
            "scores."
        )

    def _seeds(self, columns: Sequence[str]) -> str:
        """Returns a sentence that explains the scores, with the number of seeds if the table has no
        column `n`.
        """
        counts = sorted({len(row.runs) for row in self.rows})
        extremes = dict.fromkeys([counts[0], counts[-1]])
        number = "the" if "n" in columns else " to ".join(map(str, extremes))
        if counts[-1] > 1:
            return f"Scores are means ± sample standard deviations over {number} seeds."
        return "Scores are of one seed." if "n" not in columns else ""

    def _signatures(self, columns: Sequence[str]) -> str:
        """Returns a sentence with the sacreBLEU signature of each score in the ranking table."""
        signatures = self.runs[0].signatures
        texts = [
            f"{TITLES.get(name, name)} {signatures[name]}"
            for name in columns
            if signatures.get(name)
        ]
        return f"Signatures: {'; '.join(texts)}." if texts else ""


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


def _headings(columns: Sequence[str]) -> list[str]:
    """Returns the headings of a LaTeX table: titles of metrics, and short names of settings."""
    names = [column.rpartition(".")[2] for column in columns]
    return [
        TITLES.get(column, name.replace("_", " ") if names.count(name) == 1 else column)
        for column, name in zip(columns, names, strict=True)
    ]


def _cost(
    row: Configuration,
    name: str,
    summary: Callable[[list[float]], float] = max,
    digits: int = 0,
) -> str:
    """Returns a cost of the runs of a configuration as text; "–" if unknown.

    name: attribute of the runs
    summary: function of the runs' values
    digits: number of decimals
    """
    values = [value for run in row.runs if (value := getattr(run, name))]
    return f"{summary(values):,.{digits}f}" if values else "–"


def _over_sentences(
    ranked: Sequence[Configuration], metric: str, samples: int, trials: int
) -> dict[str, SignificanceResult]:
    """Tests whether the score of each configuration differs from that of the best configuration.

    The tests are over the test sentences. They use one run of each configuration: the seed with the
    best validation score. Returns the results by index of the configuration, as text.

    ranked: configurations, the best first
    metric: metric to test, `bleu` or `chrf`
    samples: number of bootstrap samples
    trials: number of randomisation trials; 0 disables the test
    """
    systems: dict[str, list[str]] = {}
    references: list[str] = []
    for number, configuration in enumerate(ranked):
        run = configuration.best_by_validation()
        answers = run.lines()
        expected = run.lines(".reference")
        # Incomplete translations cannot be aligned with the reference.
        if answers and expected and len(answers) != len(expected):
            log.warning(
                "%s: %s.txt has %s lines, but the reference has %s; the run is left out of the "
                "paired significance test, which compares sentence by sentence",
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
    return over_sentences(
        systems, references, judging_metric, metric, samples=samples, trials=trials
    )


def metric_of(run: RunResult) -> Metric:
    """Returns the metric with the options of a run, reconstructed from a score's signature."""
    entries = run.signatures.get("bleu", "").split("|")
    options = dict(entry.split(":", 1) for entry in entries if ":" in entry)
    tokenize: Any = options.get("tok", "13a")  # sacreBLEU's default
    return Metric(tokenize=tokenize, lowercase=options.get("case") == "lc")
