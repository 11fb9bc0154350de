"""Comparison of several systems' translations of the same text, in tables.

The tables are those of the tool compare-mt (Neubig et al. 2019).
"""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, zip_longest

from nmt.analysis.significance import (
    SignificanceResult,
    agreement,
    as_chances,
    as_largest,
    names_of_tests,
    over_sentences,
)
from nmt.analysis.tables import ReportColumn, ReportTable, table_of, with_best
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
from nmt.metric import TITLES, Metric, Result
from nmt.tokenizer.words import words

SUSPICIOUS = "Suspicious outputs"
BY_FREQUENCY = "Words by frequency"
BY_CASE = "Words by case"
BY_LENGTH = "Sentences by length"
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
CHRF_BORDERS = (0, 20, 40, 60, 80, 101)
"""Boundaries of the chrF intervals in the table of sentences by score, in per cent."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of systems on a test set.

    source: source sentences; None if unknown
    reference: reference translation of each sentence
    outputs: translations of each system, by name
    metric: metric options, such as `lowercase`
    counts: number of occurrences of target words, for the frequency classes
    counted: name of the file from which `counts` is computed
    links: for each sentence, the source word aligned with each reference word; None if unknown
    samples: number of bootstrap samples of the significance tests
    trials: number of randomisation trials of the significance tests
    """

    source: Sequence[str] | None
    reference: Sequence[str]
    outputs: Mapping[str, Sequence[str]]
    metric: Metric
    counts: Mapping[str, int]
    counted: str
    links: Sequence[Sequence[str]] | None = None
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
        from sacrebleu.metrics import CHRF

        chrf = CHRF(lowercase=self.metric.lowercase)
        return {
            name: [
                chrf.sentence_score(line, [reference]).score
                for line, reference in zip(lines, self.reference, strict=True)
            ]
            for name, lines in self.outputs.items()
        }

    def tables(self) -> list[ReportTable]:
        """Returns all comparison tables that have at least one row."""
        groups = frequency_class(self.counts)
        note = f"F1 score (%) of words, by their frequency in {self.counted}."
        tables = [
            self.scores(),
            self.faults(),
            self._word_table(BY_FREQUENCY, groups, FREQUENCIES, note),
            self._word_table(BY_CASE, case_class, CASES, "F1 score (%) of words."),
            self.by_source_word(),
            self.by_length(),
            self.by_sentence_score(),
            *self.by_ngram(),
        ]
        return [table for table in tables if table.rows]

    def scores(self) -> ReportTable:
        """Returns a table of the scores of all systems, with confidence intervals and p-values."""
        first = next(iter(self.outputs))
        are_several = len(self.outputs) > 1
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
        if are_several:
            note += (
                f" p is the p-value of the difference from {first} (paired bootstrap · approximate "
                "randomisation, corrected by Holm's method). Human agreement is the percentage of "
                "human judgements that agree with such a difference (Kocmi et al. 2024; 50 % is "
                "chance)."
            )
            tests = names_of_tests([*self.tests["bleu"].values()])
            caption += f"p: difference from {first}, {tests}. "
        texts = [text for text in texts if not text.startswith(TITLES["exact"])]
        systems = list(self.outputs)
        paper = table_of(
            f"Scores of {len(self.reference):,} sentences",
            self._columns(scores, in_paper=True),
            systems,
            note=f"{caption}Signatures: {'; '.join(texts)}.",
        )
        table = table_of("Scores", self._columns(scores, in_paper=False), systems, note=note)
        columns = [
            [(row, list(table.head).index(title)) for row in range(len(systems))]
            for title in (TITLES["bleu"], TITLES["chrf"], EXACT, TITLES["ter"])
        ]
        table = with_best(with_best(table, columns[:3]), columns[3:], lower=True)
        return replace(table, paper=paper)

    def _columns(
        self, scores: Mapping[str, Mapping[str, Result]], *, in_paper: bool
    ) -> list[ReportColumn[str]]:
        """Returns the columns of the table of scores.

        scores: scores of each system by metric
        in_paper: whether to return the narrower columns of a paper
        """
        expected = max(1, sum(map(count_words, self.reference)))
        return [
            ReportColumn("system", str),
            *self._score_columns("bleu", in_paper),
            *self._score_columns("chrf", in_paper),
            ReportColumn("TER", lambda name: f"{scores[name]['ter'].score:.2f}"),
            ReportColumn(EXACT, lambda name: f"{scores[name]['exact'].score:.2f}", not in_paper),
            ReportColumn(
                "length ratio",
                lambda name: f"{sum(map(count_words, self.outputs[name])) / expected:.3f}",
                not in_paper,
            ),
        ]

    def _score_columns(self, metric: str, in_paper: bool) -> list[ReportColumn[str]]:
        as_text = as_largest if in_paper else as_chances
        tests = self.tests[metric]
        first = next(iter(tests))
        are_several = len(tests) > 1

        def people(name: str) -> str:
            share = agreement(metric, tests[name].score - tests[first].score)
            return f"{share:.0f} %" if share is not None and name != first else "–"

        return [
            ReportColumn(
                TITLES[metric],
                lambda name: f"{tests[name].score:.2f} ± {tests[name].confidence:.2f}",
            ),
            ReportColumn(
                "p" if in_paper else f"p ({TITLES[metric]})",
                lambda name: as_text(*tests[name].probabilities),
                are_several,
            ),
            ReportColumn(
                f"human agreement ({TITLES[metric]})", people, are_several and not in_paper
            ),
        ]

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
        source = self.source
        if source is None:
            # a placeholder, since the kinds below do not need the source
            source = [""] * len(self.reference)
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
        return self._with_best(self._table(SUSPICIOUS, ["output is"], rows, note), lower=True)

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
            expected = accuracies[0][name].expected if name in accuracies[0] else 0
            if expected:
                scores = [f"{accuracy[name].f1:.1f}" for accuracy in accuracies]
                rows.append([name, f"{expected:,}", *scores])
        return self._with_best(self._table(title, ["words", "in the reference"], rows, note))

    def by_source_word(self) -> ReportTable:
        """Returns a table of the source words whose translations differ most between systems."""
        expected: Counter[str] = Counter()
        right: list[Counter[str]] = [Counter() for _ in self.outputs]
        for number, links in enumerate(self.links or []):
            reference = [bare(word) for word in words(self.reference[number])]
            pairs = [
                (target, source)
                for target, source in zip(reference, map(bare, links), strict=False)
                if source and target
            ]
            expected.update(source for _, source in pairs)
            for counts, lines in zip(right, self.outputs.values(), strict=True):
                # output words that no reference word has matched yet
                remaining = Counter(bare(word) for word in words(lines[number]))
                for target, source in pairs:
                    if remaining[target] > 0:
                        remaining[target] -= 1  # each output word is matched at most once
                        counts[source] += 1

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
        head = ["source word", "reference words"]
        return self._with_best(self._table("Source words", head, rows, note))

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
        note = "Cells are BLEU of each group."
        return self._with_best(self._table(BY_LENGTH, head, rows, note))

    def by_sentence_score(self) -> ReportTable:
        """Returns a table of the number of sentences in each chrF interval."""
        rows = []
        for low, high in pairwise(CHRF_BORDERS):
            counts = [
                sum(low <= score < high for score in scores)
                for scores in self.sentence_scores.values()
            ]
            rows.append([f"{low}–{min(high, 100)}", *map(str, counts)])
        return self._table("Sentences by score", ["chrF"], rows, "Cells are numbers of sentences.")

    def _table(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str
    ) -> ReportTable:
        """Returns a table with the columns of `head` and a column for each system."""
        return ReportTable(title, [*head, *self.outputs], rows, note=note)

    def _with_best(self, table: ReportTable, *, lower: bool = False) -> ReportTable:
        """Returns a comparison table in which the best system of each row is bold."""
        width = len(table.head)
        columns = range(width - len(self.outputs), width)
        rows = [[(row, column) for column in columns] for row in range(len(table.rows))]
        return with_best(table, rows, lower=lower)

    def by_ngram(self) -> list[ReportTable]:
        """Returns one table for each system after the first, with the n-grams that only one system
        has right.

        An n-gram is right if the reference contains the n-gram, too. The count of an n-gram is the
        difference of the numbers of its occurrences in the outputs of both systems.
        """
        first, *others = self.outputs
        note = (
            f"Reference n-grams of up to {LONGEST} words in the output of one system but not of "
            "the other. The count is the difference of the numbers of occurrences."
        )
        tables = []
        for other in others:
            gains: Counter[str] = Counter()
            for texts in zip(self.reference, self.outputs[first], self.outputs[other], strict=True):
                reference, *outputs = (ngrams(tokens(text), LONGEST) for text in texts)
                # An n-gram counts at most as often as it occurs in the reference.
                right = [reference & output for output in outputs]  # counts of n-grams
                gains.update({" ".join(gram): count for gram, count in right[0].items()})
                gains.subtract({" ".join(gram): count for gram, count in right[1].items()})
            ordered = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
            won = [[gram, str(gain)] for gram, gain in ordered if gain > 0]
            lost = [[gram, str(-gain)] for gram, gain in reversed(ordered) if gain < 0]
            pairs = zip_longest(won[:ROWS], lost[:ROWS], fillvalue=["", ""])
            head = [f"only in {first}", "count", f"only in {other}", "count "]
            title = f"N-grams: {first} and {other}"
            rows = [a + b for a, b in pairs]
            tables.append(ReportTable(title, head, rows, note=note, words=[2]))
        return tables


def copied(source: Sequence[str], output: Sequence[str]) -> bool:
    """Returns whether an output of three words or more is a copy, or nearly a copy, of the source
    sentence.

    Only words in the order of the source sentence match.
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
