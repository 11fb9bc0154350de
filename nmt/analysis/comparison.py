"""Quality of several translations of one text, and the differences between them.

The tables are those of compare-mt (Neubig et al. 2019).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest

from nmt.analysis.significance import (
    SignificanceResult,
    agreement,
    as_chances,
    over_sentences,
)
from nmt.analysis.tables import ReportColumn, ReportTable, table_of
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
from nmt.metric import Metric
from nmt.tokenizer.words import words

LONGEST = 4
"""Maximal number of words of an n-gram."""
ROWS = 12
"""Maximal number of rows of a table of words or n-grams."""
FEWEST = 3
"""Smallest number of occurrences of a source word that has a row."""
FEWEST_SENTENCES = 5
"""Smallest number of sentences of a length group."""
CHRF_BORDERS = (0, 20, 40, 60, 80, 101)
"""Borders of the groups by chrF."""


@dataclass(frozen=True)
class Comparison:
    """A text with its reference and the translations of some systems.

    source: source sentences; None if unknown
    reference: reference of each sentence
    outputs: translations by the name of the system
    metric: options of the scores
    counts: frequencies of words of the target language
    counted: name of the text in which the words were counted
    links: for each sentence, the source word that is aligned with each word of the reference
    samples: bootstrap samples of the significance tests
    trials: randomisation trials of the significance tests
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
        """Significance of the difference of each system from the first, by metric."""
        counts = {"samples": self.samples, "trials": self.trials}
        return {
            name: over_sentences(self.outputs, self.reference, self.metric, name, **counts)
            for name in ("bleu", "chrf")
        }

    @cached_property
    def sentence_scores(self) -> dict[str, list[float]]:
        """chrF of each sentence, by system."""
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
        """All tables that are not empty."""
        groups = frequency_class(self.counts)
        note = f"F1 (per cent) of words by their frequency in {self.counted}."
        tables = [
            self.scores(),
            self.faults(),
            self._word_table("Words by frequency", groups, FREQUENCIES, note),
            self._word_table("Words by case", case_class, CASES, "F1 (per cent)."),
            self.by_source_word(),
            self.by_length(),
            self.by_sentence_score(),
            *self.by_ngram(),
        ]
        return [table for table in tables if table.rows]

    def scores(self) -> ReportTable:
        """Table of all metrics, with confidence intervals and significance."""
        first = next(iter(self.outputs))
        are_several = len(self.outputs) > 1
        scores = {
            name: self.metric.score(lines, self.reference, ter=True)
            for name, lines in self.outputs.items()
        }
        expected = max(1, sum(map(count_words, self.reference)))
        columns: list[ReportColumn[str]] = [ReportColumn("system", str)]
        for metric, title in (("bleu", "BLEU"), ("chrf", "chrF")):
            columns += self._score_columns(metric, title)
        columns += [
            ReportColumn("TER", lambda name: f"{scores[name]['ter'].score:.2f}"),
            ReportColumn("exact", lambda name: f"{scores[name]['exact'].score:.2f}"),
            ReportColumn(
                "length",
                lambda name: f"{sum(map(count_words, self.outputs[name])) / expected:.3f}",
            ),
        ]
        signatures = "; ".join(tests[first].signature for tests in self.tests.values())
        note = (
            f"± is half of the 95 % interval over sentences. {signatures}. "
            "length: output words per word of the reference."
        )
        if are_several:
            note += (
                f" p: p-value of the difference from {first} (paired bootstrap · approximate "
                "randomisation, Holm's method). people: share of human judgements that agree with "
                "a difference of this size (Kocmi et al. 2024; 50 % is chance)."
            )
        return table_of("Scores", columns, list(self.outputs), note=note)

    def _score_columns(self, metric: str, title: str) -> list[ReportColumn[str]]:
        tests = self.tests[metric]
        first = next(iter(tests))
        are_several = len(tests) > 1

        def people(name: str) -> str:
            share = agreement(metric, tests[name].score - tests[first].score)
            return f"{share:.0f} %" if share is not None and name != first else "–"

        return [
            ReportColumn(
                title, lambda name: f"{tests[name].score:.2f} ± {tests[name].confidence:.2f}"
            ),
            ReportColumn("p", lambda name: as_chances(*tests[name].probabilities), are_several),
            ReportColumn("people", people, are_several),
        ]

    def faults(self) -> ReportTable:
        """Table of probable faults: numbers of sentences."""
        kinds: dict[str, Callable[[str, str, str], bool]] = {
            "empty": lambda text, _, out: not out.strip(),
            "copied from the source": lambda text, _, out: copied(tokens(text), tokens(out)),
            "repeating itself": lambda text, _, out: repeats(tokens(out)),
            "less than half as long": lambda _, ref, out: (
                0 < count_words(out) < count_words(ref) / 2
            ),
            "more than twice as long": lambda _, ref, out: (
                count_words(out) > 2 * max(1, count_words(ref))
            ),
            "nothing of the reference": lambda _, ref, out: detached(tokens(out), tokens(ref)),
        }
        source = self.source
        if source is None:
            source = [""] * len(self.reference)
            del kinds["copied from the source"]
        rows = []
        for kind, is_kind in kinds.items():
            counts = [
                sum(map(is_kind, source, self.reference, lines)) for lines in self.outputs.values()
            ]
            rows.append([kind, *map(str, counts)])
        note = (
            "Numbers of sentences. Copied: at least four of five words are in the source. "
            "Repeating: a word or phrase three times in a row. Nothing of the reference: no word "
            "of "
            "three letters or more is in it, as in hallucinations."
        )
        return self._table("Suspicious outputs", ["output is"], rows, note)

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
        return self._table(title, ["words", "expected"], rows, note)

    def by_source_word(self) -> ReportTable:
        """Table of the source words whose translations differ most between systems."""
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
                remaining = Counter(bare(word) for word in words(lines[number]))
                for target, source in pairs:
                    if remaining[target] > 0:
                        remaining[target] -= 1  # each word of the output counts once
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
            "Words of the reference that the attention of the first model aligns with the source "
            "word, and the share (per cent) of them that each system wrote. Words in which systems "
            "differ most."
        )
        return self._table("Source words", ["source word", "expected"], rows, note)

    def by_length(self) -> ReportTable:
        """Table of BLEU by length of the source, or of the reference if the source is unknown."""
        rows = []
        for group in length_groups(self.source or self.reference, FEWEST_SENTENCES):
            references = [self.reference[i] for i in group.sentences]
            row = [f"{group.name} words", str(len(group.sentences))]
            for lines in self.outputs.values():
                scores = self.metric.score([lines[i] for i in group.sentences], references)
                row.append(f"{scores['bleu'].score:.1f}")
            rows.append(row)
        head = [f"{'source' if self.source else 'reference'} has", "sentences"]
        return self._table("Sentences by length", head, rows, "BLEU of each group.")

    def by_sentence_score(self) -> ReportTable:
        """Table of the numbers of sentences in each interval of chrF."""
        rows = []
        for low, high in pairwise(CHRF_BORDERS):
            counts = [
                sum(low <= score < high for score in scores)
                for scores in self.sentence_scores.values()
            ]
            rows.append([f"{low}–{min(high, 100)}", *map(str, counts)])
        return self._table("Sentences by score", ["chrF"], rows, "Sentences.")

    def _table(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str
    ) -> ReportTable:
        """A table with a column for each system behind the columns of `head`."""
        return ReportTable(title, [*head, *self.outputs], rows, note=note)

    def by_ngram(self) -> list[ReportTable]:
        """Tables of the n-grams that the first system has right and another misses, and vice
        versa."""
        first, *others = self.outputs
        note = (
            f"N-grams of the reference of up to {LONGEST} words that one system has right and the "
            "other misses, net."
        )
        tables = []
        for other in others:
            gains: Counter[str] = Counter()
            for texts in zip(self.reference, self.outputs[first], self.outputs[other], strict=True):
                reference, *outputs = (ngrams(tokens(text), LONGEST) for text in texts)
                # Each n-gram counts as often as it is in the reference, at most.
                right = [reference & output for output in outputs]
                gains.update({" ".join(gram): count for gram, count in right[0].items()})
                gains.subtract({" ".join(gram): count for gram, count in right[1].items()})
            ordered = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
            won = [[gram, str(gain)] for gram, gain in ordered if gain > 0]
            lost = [[gram, str(-gain)] for gram, gain in reversed(ordered) if gain < 0]
            pairs = zip_longest(won[:ROWS], lost[:ROWS], fillvalue=["", ""])
            head = [f"{first} writes", "times", f"{other} writes", "times "]
            title = f"N-grams: {first} and {other}"
            tables.append(ReportTable(title, head, [a + b for a, b in pairs], note=note))
        return tables


def copied(source: Sequence[str], output: Sequence[str]) -> bool:
    """Returns whether four of five words of an output are in its source; it has three or more."""
    source_words = {*source}
    return len(output) >= 3 and sum(word in source_words for word in output) >= 0.8 * len(output)


def repeats(output: Sequence[str], times: int = 3) -> bool:
    """Returns whether a phrase of up to four words is repeated `times` times in a row."""
    return any(
        list(output[start : start + size]) * times == list(output[start : start + size * times])
        for size in range(1, LONGEST + 1)
        for start in range(len(output) - size * times + 1)
    )


def detached(output: Sequence[str], reference: Sequence[str]) -> bool:
    """Returns whether an output has no word of its reference with three letters or more.

    Outputs of one or two words do not count.
    """
    expected = {word.lower() for word in reference if len(word) > 2}
    is_disjoint = expected.isdisjoint(word.lower() for word in output)
    return len(output) > 2 and bool(expected) and is_disjoint
