"""Table of suspicious outputs of compared systems, such as copies of the source."""

import difflib
from collections.abc import Callable, Sequence

from nmt.analysis.comparison import Comparison
from nmt.analysis.tables import ReportTable
from nmt.analysis.word_statistics import count_words, tokens
from nmt.tokenizer.words import bare

SUSPICIOUS = "Suspicious outputs"
"""Title of the table that counts suspicious outputs, such as copies of the source."""
COPY_SHARE = 0.8
"""Minimum similarity of source and output for an output to count as copied.

The similarity is twice the number of words that occur in both sentences in the same order, divided
by the number of words of both sentences.
"""
LONGEST_PHRASE = 4
"""Maximum number of words in a repeated phrase."""
TIMES = 3
"""Number of successive occurrences from which a phrase counts as repeated."""


def suspicious_outputs(comparison: Comparison) -> ReportTable:
    """Returns a table with the number of suspicious outputs of each kind."""
    kinds: dict[str, Callable[[str, str, str], bool]] = {
        "empty": lambda text, _, out: not out.strip(),
        "copied from the source": lambda text, _, out: copied(tokens(text), tokens(out)),
        "repetitive": lambda text, _, out: repeats(tokens(out)),
        "less than half as long": lambda _, ref, out: 0 < count_words(out) < count_words(ref) / 2,
        "more than twice as long": lambda _, ref, out: (
            count_words(out) > 2 * max(1, count_words(ref))
        ),
        "without a reference word": lambda _, ref, out: detached(tokens(out), tokens(ref)),
    }
    source = comparison.source or [""] * len(comparison.reference)
    if not comparison.source:
        del kinds["copied from the source"]
    outputs = comparison.outputs.values()
    rows = [
        [kind, *(str(sum(map(is_kind, source, comparison.reference, out))) for out in outputs)]
        for kind, is_kind in kinds.items()
    ]
    note = (
        "Cells are numbers of sentences. In a copied output, the words in common with the source, "
        "in the same order, are at least 80 % of the mean length of both sentences. A "
        "repetitive output repeats a word or phrase three times in a row. An output without a "
        "reference word (of three letters or more) may be a hallucination."
    )
    return comparison.table(SUSPICIOUS, ["output is"], rows, note, lower=True)


def copied(source: Sequence[str], output: Sequence[str]) -> bool:
    """Returns whether an output of three words or more is a copy, or nearly a copy, of the source
    sentence.

    Words count as copied only if they are in the same order as in the source sentence.
    """
    # autojunk would ignore frequent words
    matcher = difflib.SequenceMatcher(None, source, output, autojunk=False)
    return len(output) >= 3 and matcher.ratio() >= COPY_SHARE


def repeats(output: Sequence[str]) -> bool:
    """Returns whether a phrase of up to four words occurs three times in succession. Punctuation
    marks alone, such as those of an ellipsis, are not a phrase."""
    return any(
        any(map(bare, output[start : start + size]))
        and list(output[start : start + size]) * TIMES == list(output[start : start + size * TIMES])
        for size in range(1, LONGEST_PHRASE + 1)
        for start in range(len(output) - size * TIMES + 1)
    )


def detached(output: Sequence[str], reference: Sequence[str]) -> bool:
    """Returns whether an output contains no reference word of three letters or more.

    The result is False for outputs of one or two words.
    """
    expected = {word.lower() for word in reference if len(word) > 2}
    is_disjoint = expected.isdisjoint(word.lower() for word in output)
    return len(output) > 2 and bool(expected) and is_disjoint
