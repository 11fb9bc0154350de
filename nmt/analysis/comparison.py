"""Comparison of systems on a test set: significance tests, sentence scores, and the score table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nmt.analysis.significance import (
    SignificanceResult,
    agreement,
    as_chances,
    as_largest,
    names_of_tests,
    over_sentences,
)
from nmt.analysis.tables import ReportTable, with_best
from nmt.analysis.word_statistics import count_words
from nmt.metric import TITLES, Metric, Result, similarity

EXACT = "exact match (%)"
"""Name of the column with the percentage of outputs that are equal to the reference."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of systems on a test set.

    source: source sentences; empty if unknown
    reference: reference translation of each sentence
    outputs: translations of each system, by name
    metric: metric options, such as `lowercase`
    counts: number of occurrences of target words, for the frequency classes
    counted: name of the file from which `counts` is computed
    links: pairs of a reference word and the source word aligned with it, by index of the sentence;
        empty if unknown
    samples: number of bootstrap samples of the significance tests
    trials: number of randomisation trials of the significance tests
    """

    source: Sequence[str]
    reference: Sequence[str]
    outputs: Mapping[str, Sequence[str]]
    metric: Metric
    counts: Mapping[str, int]
    counted: str
    links: Mapping[int, Sequence[tuple[str, str]]] = field(default_factory=dict)
    samples: int = 1000
    trials: int = 1000

    @cached_property
    def tests(self) -> dict[str, dict[str, SignificanceResult]]:
        """Significance results of each system compared with the first system, by metric."""
        return {
            name: over_sentences(
                self.outputs,
                [self.reference],
                self.metric,
                name,
                samples=self.samples,
                trials=self.trials,
            )
            for name in ("bleu", "chrf")
        }

    @cached_property
    def sentence_scores(self) -> dict[str, list[float]]:
        """Maps the name of each system to the sentence-level chrF of its translations."""
        score = similarity("chrf", **self.metric.options)
        return {name: [*map(score, lines, self.reference)] for name, lines in self.outputs.items()}

    def table(
        self,
        title: str,
        head: Sequence[str],
        rows: Sequence[Sequence[str]],
        note: str,
        *,
        lower: bool = False,
    ) -> ReportTable:
        """Returns a table with a column for each system, in which the best system of each row is
        bold.

        title: title of the table
        head: names of the columns before the columns of the systems
        rows: cells of each row
        note: explanation below the table
        lower: whether lower numbers are better
        """
        table = ReportTable(title, [*head, *self.outputs], rows, note=note)
        columns = range(len(head), len(table.head))
        cells = [[(row, column) for column in columns] for row in range(len(rows))]
        return with_best(table, cells, lower=lower)


def score_table(comparison: Comparison) -> ReportTable:
    """Returns a table of the scores of all systems, with confidence intervals and p-values."""
    first = next(iter(comparison.outputs))
    scores = {
        name: comparison.metric.score(lines, comparison.reference, ter=True)
        for name, lines in comparison.outputs.items()
    }
    signatures = {name: result.signature for name, result in scores[first].items()}
    signatures |= {name: tests[first].signature for name, tests in comparison.tests.items()}
    # Metrics of a plugin are not in the table.
    texts = [f"{TITLES[name]} {text}" for name, text in signatures.items() if name in TITLES]
    interval = "± is half the 95 % confidence interval over sentences."
    note = (
        f"All scores except the length ratio are percentages. {interval} The length ratio is "
        f"the number of output words per reference word. Signatures: {'; '.join(texts)}."
    )
    caption = f"{interval} "
    if len(comparison.outputs) > 1:
        results = [*comparison.tests["bleu"].values()]
        both_tests = names_of_tests(results, " · approximate randomisation")
        note += (
            f" p is the p-value of the difference from {first} ({both_tests}). Human agreement is "
            "the percentage of human judgements that agree with such a difference (Kocmi et al. "
            "2024; 50 % is chance)."
        )
        caption += f"p: difference from {first}, {names_of_tests(results)}. "
    # The table of a paper has no column of exact matches.
    texts = [text for text in texts if not text.startswith(TITLES["exact"])]
    paper_columns = {
        name: cells
        for name, cells in _columns(comparison, scores, as_largest).items()
        if not name.startswith(("human agreement", EXACT, "length ratio"))
    }
    paper = ReportTable(
        f"Scores of {len(comparison.reference):,} sentences",
        ["p" if name.startswith("p (") else name for name in paper_columns],
        list(zip(*paper_columns.values(), strict=True)),
        note=f"{caption}Signatures: {'; '.join(texts)}.",
    )
    columns = _columns(comparison, scores, as_chances)
    rows = list(zip(*columns.values(), strict=True))
    table = ReportTable("Scores", [*columns], rows, note=note, paper=paper)
    for title in (TITLES["bleu"], TITLES["chrf"], EXACT, TITLES["ter"]):
        cells = [(row, table.head.index(title)) for row in range(len(rows))]
        table = with_best(table, [cells], lower=title == TITLES["ter"])
    return table


def _columns(
    comparison: Comparison,
    scores: Mapping[str, Mapping[str, Result]],
    p_values: Callable[..., str],
) -> dict[str, list[str]]:
    """Returns the cells of each non-empty column of the score table, by column name.

    comparison: compared systems
    scores: scores of each system by metric
    p_values: function that converts p-values to text
    """
    first, *others = comparison.outputs
    columns = {"system": [*comparison.outputs]}
    for metric, tests in comparison.tests.items():
        title = TITLES[metric]
        results = tests.values()
        gaps = [tests[name].score - tests[first].score for name in others]
        columns[title] = [f"{result.score:.2f} ± {result.confidence:.2f}" for result in results]
        columns[f"p ({title})"] = [p_values(*result.probabilities) for result in results]
        shares = [f"{agreement(metric, gap):.0f} %" for gap in gaps]
        columns[f"human agreement ({title})"] = ["–", *shares]
    lengths = [sum(map(count_words, lines)) for lines in comparison.outputs.values()]
    expected = max(1, sum(map(count_words, comparison.reference)))
    columns["TER"] = [f"{results['ter'].score:.2f}" for results in scores.values()]
    columns[EXACT] = [f"{results['exact'].score:.2f}" for results in scores.values()]
    columns["length ratio"] = [f"{length / expected:.3f}" for length in lengths]
    return {name: cells for name, cells in columns.items() if {*cells} != {"–"}}
