"""Comparison of several systems' translations of the same text, in tables.

The tables are those of the tool compare-mt (Neubig et al. 2019).
"""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, zip_longest

from nmt.analysis.significance import (
    LEVEL,
    SignificanceResult,
    agreement,
    as_chances,
    as_largest,
    names_of_tests,
    over_sentences,
)
from nmt.analysis.tables import ReportTable, with_best
from nmt.analysis.word_statistics import (
    CASES,
    FREQUENCIES,
    bare,
    case_class,
    count_words,
    frequency_class,
    length_groups,
    ngrams,
    tokens,
    word_accuracy,
)
from nmt.metric import TITLES, Metric, Result, similarity
from nmt.tokenizer.words import words

EXACT = "exact match (%)"
"""Column of the percentage of outputs that are equal to the reference."""
LONGEST = 4
"""Maximum number of words in an n-gram."""
ROWS = 12
"""Maximum number of rows in a table of words or n-grams."""
FEWEST = 3
"""Minimum number of occurrences of a word that has a row in the table of source words."""
FEWEST_SENTENCES = 5
"""Minimum number of sentences in a length group; smaller groups are merged with a neighbour."""
COPY_SHARE = 0.8
"""Minimum similarity of source and output for an output to count as copied.

The similarity is twice the number of words that occur in both sentences in the same order, divided
by the number of words of both sentences.
"""
LOSSES = 3
"""Maximum number of groups in the sentence of the summary that names exceptions.

An exception is a group of words or sentences in which the system with the higher BLEU is worse.
"""
MARGIN = 1.0
"""Minimum difference for which the summary names a group of words or sentences as an exception.

In such a group, the system with the higher BLEU is worse. The unit is percentage points of F1 or
BLEU, or a number of outputs.
"""
SUSPICIOUS = "Suspicious outputs"
"""Title of the table that counts faulty outputs, such as copies of the source."""
GROUPS = {
    SUSPICIOUS: "outputs that are {}",
    "Words by frequency": "F1 of words that occur {} times",
    "Words by case": "F1 of words of the class “{}”",
    "Sentences by length": "BLEU of sentences of {}",
}
"""Maps the title of a table to a format string that describes the values of a row.

{} stands for the first cell of the row, as in "F1 of words that occur 2–4 times".
"""
CHRF_BORDERS = (0, 20, 40, 60, 80, 101)
"""Boundaries of the chrF intervals in the table of sentences by score, in per cent."""


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
        counts = {"samples": self.samples, "trials": self.trials}
        return {
            name: over_sentences(self.outputs, self.reference, self.metric, name, **counts)
            for name in ("bleu", "chrf")
        }

    @cached_property
    def sentence_scores(self) -> dict[str, list[float]]:
        """Sentence-level chrF of the translations, by name of the system; one score per
        sentence.
        """
        score = similarity("chrf", **self.metric.options)
        return {name: [*map(score, lines, self.reference)] for name, lines in self.outputs.items()}

    def sentences(self, tables: Sequence[ReportTable]) -> list[str]:
        """Returns a sentence about the difference between each system and the first, or about
        the scores of a single system.

        For two systems, a further sentence names the groups in which the system with the higher
        BLEU is worse.

        tables: tables of the comparison
        """
        first, *others = self.outputs
        if others:
            losses = [self._losses(tables)] if len(others) == 1 else []
            return [*(self._difference(first, other) for other in others), *losses]
        results = [
            f"{tests[first].score:.1f} ± {tests[first].confidence:.1f} {TITLES[metric]}"
            for metric, tests in self.tests.items()
        ]
        return [f"{first}: {' and '.join(results)}."]

    def _difference(self, first: str, other: str) -> str:
        tests = self.tests["bleu"]
        better, worse = sorted((first, other), key=lambda name: -tests[name].score)
        gap = tests[better].score - tests[worse].score
        if gap == 0:
            return f"{first} and {other} have the same score: {tests[first].score:.1f} BLEU."
        scores = f"{tests[better].score:.1f} against {tests[worse].score:.1f} BLEU"
        p_values = tests[other].probabilities
        p_value = f"p = {as_chances(max(p_values))}".replace("= <", "<")
        if max(p_values) > LEVEL:
            return f"{better} and {worse} do not differ significantly: {scores}, {p_value}."
        contradiction = ""
        chrf = self.tests["chrf"]
        if chrf[worse].score > chrf[better].score and max(chrf[other].probabilities) <= LEVEL:
            contradiction = f" In chrF, {worse} is significantly better, so no system is best."
        return (
            f"{better} is better than {worse} by {gap:.1f} BLEU ({scores}, {p_value}); human "
            f"judgements agree with such a difference in {agreement('bleu', gap):.0f} % of cases."
            f"{contradiction}"
        )

    def _losses(self, tables: Sequence[ReportTable]) -> str:
        """Returns a sentence that names the groups of words and sentences in which the system with
        the higher BLEU is worse.
        """
        tests = self.tests["bleu"]
        better, worse = sorted(self.outputs, key=lambda name: -tests[name].score)
        losses = []
        for table in tables:
            sign = 1 if table.title == SUSPICIOUS else -1
            for row in table.rows if table.title in GROUPS else []:
                cells = dict(zip(table.head[-2:], row[-2:], strict=True))
                gap = sign * (float(cells[better]) - float(cells[worse]))
                group = GROUPS[table.title].format(row[0])
                losses.append((gap, f"{group} ({cells[better]} against {cells[worse]})"))
        largest = [text for gap, text in sorted(losses, reverse=True)[:LOSSES] if gap >= MARGIN]
        if largest:
            return f"{better} is worse in: {'; '.join(largest)}."
        points = f"{MARGIN:g} point or more"
        return f"{better} is worse by {points} in no group of words or sentences below."

    def tables(self) -> list[ReportTable]:
        """Returns all comparison tables that have at least one row."""
        groups = frequency_class(self.counts)
        note = f"F1 score (%) of words, by their frequency in {self.counted}."
        tables = [
            self.scores(),
            self.faults(),
            self._word_table("Words by frequency", groups, FREQUENCIES, note),
            self._word_table("Words by case", case_class, CASES, "F1 score (%) of words."),
            self.by_source_word(),
            self.by_length(),
            self.by_sentence_score(),
            *self.by_ngram(),
        ]
        return [table for table in tables if table.rows]

    def scores(self) -> ReportTable:
        """Returns a table of the scores of all systems, with confidence intervals and p-values."""
        first = next(iter(self.outputs))
        scores = {
            name: self.metric.score(lines, self.reference, ter=True)
            for name, lines in self.outputs.items()
        }
        signatures = {name: result.signature for name, result in scores[first].items()}
        signatures |= {name: tests[first].signature for name, tests in self.tests.items()}
        texts = [f"{TITLES[name]} {text}" for name, text in signatures.items()]
        interval = "± is half the 95 % confidence interval over sentences."
        note = (
            f"All scores except the length ratio are percentages. {interval} The length ratio is "
            f"the number of output words per reference word. Signatures: {'; '.join(texts)}."
        )
        caption = f"{interval} "
        if len(self.outputs) > 1:
            note += (
                f" p is the p-value of the difference from {first} (paired bootstrap · approximate "
                "randomisation, corrected by Holm's method). Human agreement is the percentage of "
                "human judgements that agree with such a difference (Kocmi et al. 2024; 50 % is "
                "chance)."
            )
            tests = names_of_tests([*self.tests["bleu"].values()])
            caption += f"p: difference from {first}, {tests}. "
        texts = [text for text in texts if not text.startswith(TITLES["exact"])]
        paper_columns = {
            name: cells
            for name, cells in self._columns(scores, as_largest).items()
            if not name.startswith(("human agreement", EXACT, "length ratio"))
        }
        paper = ReportTable(
            f"Scores of {len(self.reference):,} sentences",
            ["p" if name.startswith("p (") else name for name in paper_columns],
            list(zip(*paper_columns.values(), strict=True)),
            note=f"{caption}Signatures: {'; '.join(texts)}.",
        )
        columns = self._columns(scores, as_chances)
        rows = list(zip(*columns.values(), strict=True))
        table = ReportTable("Scores", [*columns], rows, note=note, paper=paper)
        for title in (TITLES["bleu"], TITLES["chrf"], EXACT, TITLES["ter"]):
            cells = [(row, table.head.index(title)) for row in range(len(rows))]
            table = with_best(table, [cells], lower=title == TITLES["ter"])
        return table

    def _columns(
        self, scores: Mapping[str, Mapping[str, Result]], p_values: Callable[..., str]
    ) -> dict[str, list[str]]:
        """Returns the cells of each non-empty column of the score table, by column name.

        scores: scores of each system by metric
        p_values: function that converts p-values to text
        """
        first, *others = self.outputs
        columns = {"system": [*self.outputs]}
        for metric, tests in self.tests.items():
            title = TITLES[metric]
            results = tests.values()
            gaps = [tests[name].score - tests[first].score for name in others]
            columns[title] = [f"{result.score:.2f} ± {result.confidence:.2f}" for result in results]
            columns[f"p ({title})"] = [p_values(*result.probabilities) for result in results]
            shares = [f"{agreement(metric, gap):.0f} %" for gap in gaps]
            columns[f"human agreement ({title})"] = ["–", *shares]
        lengths = [sum(map(count_words, lines)) for lines in self.outputs.values()]
        expected = max(1, sum(map(count_words, self.reference)))
        columns["TER"] = [f"{results['ter'].score:.2f}" for results in scores.values()]
        columns[EXACT] = [f"{results['exact'].score:.2f}" for results in scores.values()]
        columns["length ratio"] = [f"{length / expected:.3f}" for length in lengths]
        return {name: cells for name, cells in columns.items() if {*cells} != {"–"}}

    def faults(self) -> ReportTable:
        """Returns a table with the number of suspicious outputs of each kind."""
        kinds: dict[str, Callable[[str, str, str], bool]] = {
            "empty": lambda text, _, out: not out.strip(),
            "copied from the source": lambda text, _, out: copied(tokens(text), tokens(out)),
            "repetitive": lambda text, _, out: repeats(tokens(out)),
            "less than half as long": lambda _, ref, out: (
                0 < count_words(out) < count_words(ref) / 2
            ),
            "more than twice as long": lambda _, ref, out: (
                count_words(out) > 2 * max(1, count_words(ref))
            ),
            "without a reference word": lambda _, ref, out: detached(tokens(out), tokens(ref)),
        }
        source = self.source or [""] * len(self.reference)
        if not self.source:
            del kinds["copied from the source"]
        rows = []
        for kind, is_kind in kinds.items():
            counts = [
                sum(map(is_kind, source, self.reference, lines)) for lines in self.outputs.values()
            ]
            rows.append([kind, *map(str, counts)])
        note = (
            "Cells are numbers of sentences. A copied output has at least 80 % of its words in "
            "common with the source, in the same order. A repetitive output repeats a word or "
            "phrase three times in a row. An output without a reference word (of three letters or "
            "more) may be a hallucination."
        )
        return self._table(SUSPICIOUS, ["output is"], rows, note, lower=True)

    def _word_table(
        self, title: str, group: Callable[[str], str], names: Sequence[str], note: str
    ) -> ReportTable:
        reference = [tokens(line) for line in self.reference]
        accuracies = [
            word_accuracy([tokens(line) for line in lines], reference, group)
            for lines in self.outputs.values()
        ]
        rows = []
        for name in names:
            if name in accuracies[0]:
                scores = [f"{accuracy[name].f1:.1f}" for accuracy in accuracies]
                rows.append([name, f"{accuracies[0][name].expected:,}", *scores])
        return self._table(title, ["words", "in the reference"], rows, note)

    def by_source_word(self) -> ReportTable:
        """Returns a table of the source words whose translations differ most between systems."""
        expected: Counter[str] = Counter()
        right: list[Counter[str]] = [Counter() for _ in self.outputs]
        for number, links in self.links.items():
            pairs = [(bare(target), bare(source)) for target, source in links]
            pairs = [(target, source) for target, source in pairs if target and source]
            expected.update(source for _, source in pairs)
            for counts, lines in zip(right, self.outputs.values(), strict=True):
                written = {bare(word) for word in words(lines[number])}
                counts.update(source for target, source in pairs if target in written)

        def gain(source: str) -> int:
            return max(abs(right[0][source] - counts[source]) for counts in right)

        frequent = [source for source in expected if expected[source] >= FEWEST]
        # The names break ties, so that the table is always the same.
        frequent.sort(key=lambda source: (-gain(source), -expected[source], source))
        rows = []
        for source in frequent[:ROWS]:
            shares = [f"{100 * counts[source] / expected[source]:.0f}" for counts in right]
            rows.append([source, f"{expected[source]:,}", *shares])
        note = (
            "The second column is the number of reference words that the attention of the first "
            "model aligns with the source word. Other cells are the percentage of these words that "
            "the system's output contains. Rows are the words in which the systems differ most."
        )
        return self._table("Source words", ["source word", "reference words"], rows, note)

    def by_length(self) -> ReportTable:
        """Returns a table of BLEU by source length; without a source, by reference length."""
        rows = []
        for group in length_groups(self.source or self.reference, FEWEST_SENTENCES):
            references = [self.reference[i] for i in group.sentences]
            row = [f"{group.name} words", str(len(group.sentences))]
            for lines in self.outputs.values():
                scores = self.metric.score([lines[i] for i in group.sentences], references)
                row.append(f"{scores['bleu'].score:.1f}")
            rows.append(row)
        head = [f"{'source' if self.source else 'reference'} length", "sentences"]
        return self._table("Sentences by length", head, rows, "Cells are BLEU of each group.")

    def by_sentence_score(self) -> ReportTable:
        """Returns a table of the number of sentences in each chrF interval."""
        rows = []
        for low, high in pairwise(CHRF_BORDERS):
            counts = [
                sum(low <= score < high for score in scores)
                for scores in self.sentence_scores.values()
            ]
            rows.append([f"{low}–{min(high, 100)}", *map(str, counts)])
        head = ["chrF", *self.outputs]
        return ReportTable("Sentences by score", head, rows, note="Cells are numbers of sentences.")

    def _table(
        self,
        title: str,
        head: Sequence[str],
        rows: Sequence[Sequence[str]],
        note: str,
        *,
        lower: bool = False,
    ) -> ReportTable:
        """Returns a table in which the best system of each row is bold.

        head: names of the columns before the columns of the systems
        lower: whether lower numbers are better
        """
        table = ReportTable(title, [*head, *self.outputs], rows, note=note)
        columns = range(len(head), len(table.head))
        cells = [[(row, column) for column in columns] for row in range(len(rows))]
        return with_best(table, cells, lower=lower)

    def by_ngram(self) -> list[ReportTable]:
        """Returns one table for each system after the first.

        The table lists the n-grams that the first system has right more often than the other
        system, and the n-grams for which the reverse is true. An n-gram is right if the reference
        contains it. Its count is the difference between its numbers of occurrences in the outputs.
        """
        first, *others = self.outputs
        note = (
            f"Reference n-grams of up to {LONGEST} words in the output of one system but not of "
            "the other. The count is the difference between the numbers of occurrences."
        )
        tables = []
        for other in others:
            gains: Counter[tuple[str, ...]] = Counter()
            for texts in zip(self.reference, self.outputs[first], self.outputs[other], strict=True):
                reference, *outputs = (ngrams(tokens(text), LONGEST) for text in texts)
                # An n-gram counts at most as often as it occurs in the reference.
                gains.update(reference & outputs[0])
                gains.subtract(reference & outputs[1])
            ordered = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
            won = [[" ".join(gram), str(gain)] for gram, gain in ordered if gain > 0]
            lost = [[" ".join(gram), str(-gain)] for gram, gain in reversed(ordered) if gain < 0]
            pairs = zip_longest(won[:ROWS], lost[:ROWS], fillvalue=["", ""])
            head = [f"only in {first}", "count", f"only in {other}", "count "]
            title = f"N-grams: {first} and {other}"
            rows = [a + b for a, b in pairs]
            tables.append(ReportTable(title, head, rows, note=note, words=[2]))
        return tables


def copied(source: Sequence[str], output: Sequence[str]) -> bool:
    """Returns whether an output of three words or more is a copy, or nearly a copy, of the source
    sentence.

    Words count as copied only if they are in the same order as in the source sentence.
    """
    # autojunk would ignore frequent words
    matcher = difflib.SequenceMatcher(None, source, output, autojunk=False)
    return len(output) >= 3 and matcher.ratio() >= COPY_SHARE


def repeats(output: Sequence[str], times: int = 3) -> bool:
    """Returns whether a phrase of up to four words is repeated `times` times in succession."""
    return any(
        list(output[start : start + size]) * times == list(output[start : start + size * times])
        for size in range(1, LONGEST + 1)
        for start in range(len(output) - size * times + 1)
    )


def detached(output: Sequence[str], reference: Sequence[str]) -> bool:
    """Returns whether an output contains no reference word of three letters or more.

    The result is False for outputs of one or two words.
    """
    expected = {word.lower() for word in reference if len(word) > 2}
    is_disjoint = expected.isdisjoint(word.lower() for word in output)
    return len(output) > 2 and bool(expected) and is_disjoint
