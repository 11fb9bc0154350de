"""Tables of a comparison of systems: scores, suspicious outputs, and accuracy by groups of words
and of sentences.

The tables are those of the tool compare-mt (Neubig et al. 2019).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest

from sacrebleu.metrics.helpers import extract_all_word_ngrams

from nmt.analysis.comparison import Comparison, score_table
from nmt.analysis.suspicious_outputs import suspicious_outputs
from nmt.analysis.tables import ReportTable
from nmt.analysis.word_statistics import (
    CASES,
    FREQUENCIES,
    case_class,
    frequency_class,
    length_groups,
    tokens,
    word_accuracy,
)
from nmt.tokenizer.words import bare, words

LONGEST = 4
"""Maximum number of words in an n-gram."""
ROWS = 12
"""Maximum number of rows in a table of words or n-grams."""
FEWEST = 3
"""Minimum number of occurrences for a word to get a row in the table of source words."""
FEWEST_SENTENCES = 5
"""Minimum number of sentences in a length group; smaller groups are merged with a neighbour."""
CHRF_BORDERS = (0, 20, 40, 60, 80, 101)
"""Boundaries of the chrF intervals in the table of sentences by score, in per cent."""


def comparison_tables(comparison: Comparison) -> list[ReportTable]:
    """Returns all comparison tables that have at least one row."""
    groups = frequency_class(comparison.counts)
    note = f"F1 score (%) of words, by their frequency in {comparison.counted}."
    tables = [
        score_table(comparison),
        suspicious_outputs(comparison),
        _word_table(comparison, "Words by frequency", groups, FREQUENCIES, note),
        _word_table(comparison, "Words by case", case_class, CASES, "F1 score (%) of words."),
        _source_word_table(comparison),
        _length_table(comparison),
        _score_interval_table(comparison),
        *_ngram_tables(comparison),
    ]
    return [table for table in tables if table.rows]


def _word_table(
    comparison: Comparison,
    title: str,
    group: Callable[[str], str],
    names: Sequence[str],
    note: str,
) -> ReportTable:
    """Returns a table of the F1 score of each group of words.

    comparison: translations of all systems
    title: title of the table
    group: function that returns the group of a word
    names: names of the groups, in the order of the rows
    note: explanation below the table
    """
    reference = [tokens(line) for line in comparison.reference]
    accuracies = [
        word_accuracy([tokens(line) for line in lines], reference, group)
        for lines in comparison.outputs.values()
    ]
    rows = [
        [
            name,
            f"{accuracies[0][name].expected:,}",
            *(f"{accuracy[name].f1:.1f}" for accuracy in accuracies),
        ]
        for name in names
        if name in accuracies[0]
    ]
    return comparison.table(title, ["words", "in the reference"], rows, note)


def _length_table(comparison: Comparison) -> ReportTable:
    """Returns a table of BLEU by source length; without a source, by reference length."""
    rows = []
    for group in length_groups(comparison.source or comparison.reference, FEWEST_SENTENCES):
        references = [comparison.reference[i] for i in group.sentences]
        row = [f"{group.name} words", str(len(group.sentences))]
        for lines in comparison.outputs.values():
            # Corpus BLEU of the group, not the mean BLEU of its sentences
            translations = [lines[i] for i in group.sentences]
            row.append(f"{comparison.metric.bleu_of_group(translations, references):.1f}")
        rows.append(row)
    head = [f"{'source' if comparison.source else 'reference'} length", "sentences"]
    return comparison.table("Sentences by length", head, rows, "Cells are BLEU of each group.")


def _score_interval_table(comparison: Comparison) -> ReportTable:
    """Returns a table of the number of sentences in each chrF interval."""
    rows = []
    for low, high in pairwise(CHRF_BORDERS):
        counts = [
            sum(low <= score < high for score in scores)
            for scores in comparison.sentence_scores.values()
        ]
        rows.append([f"{low}–{min(high, 100)}", *map(str, counts)])
    return ReportTable(
        "Sentences by score",
        ["chrF", *comparison.outputs],
        rows,
        note="Cells are numbers of sentences.",
    )


def _source_word_table(comparison: Comparison) -> ReportTable:
    """Returns a table of the source words whose translations differ most between systems."""
    expected: Counter[str] = Counter()
    right: list[Counter[str]] = [Counter() for _ in comparison.outputs]
    for number, links in comparison.links.items():
        pairs = [(bare(target), bare(source)) for target, source in links]
        pairs = [(target, source) for target, source in pairs if target and source]
        expected.update(source for _, source in pairs)
        for counts, lines in zip(right, comparison.outputs.values(), strict=True):
            written = {bare(word) for word in words(lines[number])}
            counts.update(source for target, source in pairs if target in written)

    def gain(source: str) -> int:
        return max(abs(right[0][source] - counts[source]) for counts in right)

    frequent = [source for source in expected if expected[source] >= FEWEST]
    # The names break ties, so that the table is always the same.
    frequent.sort(key=lambda source: (-gain(source), -expected[source], source))
    rows = [
        [
            source,
            f"{expected[source]:,}",
            *(f"{100 * counts[source] / expected[source]:.0f}" for counts in right),
        ]
        for source in frequent[:ROWS]
    ]
    note = (
        "The second column is the number of reference words that the attention of the first "
        "model aligns with the source word. Other cells are the percentage of these words that "
        "the system's output contains. Rows are the words in which the systems differ most."
    )
    return comparison.table("Source words", ["source word", "reference words"], rows, note)


def _ngram_tables(comparison: Comparison) -> list[ReportTable]:
    """Returns one table for each system after the first.

    The table lists the n-grams that the first system produces correctly more often than the
    other system, and the n-grams for which the reverse is true. An occurrence is correct if the
    reference contains the n-gram at least as often. The count of an n-gram is the difference
    between its numbers of correct occurrences in the outputs of the two systems.
    """
    first, *others = comparison.outputs
    note = (
        f"Reference n-grams of up to {LONGEST} words in the output of one system but not of "
        "the other. The count is the difference between the numbers of occurrences."
    )
    tables = []
    for other in others:
        gains: Counter[tuple[str, ...]] = Counter()
        for texts in zip(
            comparison.reference, comparison.outputs[first], comparison.outputs[other], strict=True
        ):
            reference, *outputs = (
                extract_all_word_ngrams(" ".join(tokens(text)), 1, LONGEST)[0] for text in texts
            )
            # An n-gram counts at most as often as it occurs in the reference.
            gains.update(reference & outputs[0])
            gains.subtract(reference & outputs[1])
        ordered = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
        won = [[" ".join(gram), str(gain)] for gram, gain in ordered if gain > 0]
        lost = [[" ".join(gram), str(-gain)] for gram, gain in reversed(ordered) if gain < 0]
        rows = [a + b for a, b in zip_longest(won[:ROWS], lost[:ROWS], fillvalue=["", ""])]
        head = [f"only in {first}", "count", f"only in {other}", "count "]
        title = f"N-grams: {first} and {other}"
        tables.append(ReportTable(title, head, rows, note=note, words=[2]))
    return tables
