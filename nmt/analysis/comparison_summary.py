"""Summary of a comparison: sentences about the differences between the systems."""

from collections.abc import Sequence

from nmt.analysis.comparison import Comparison
from nmt.analysis.significance import LEVEL, agreement, as_chances
from nmt.analysis.suspicious_outputs import SUSPICIOUS
from nmt.analysis.tables import ReportTable
from nmt.metric import TITLES

EXCEPTIONS = 3
"""Maximum number of exceptions that the summary names.

An exception is a group of words or sentences in which the system with the higher BLEU is worse.
"""
MARGIN = 1.0
"""Minimum difference at which the summary names an exception, in points of F1 or BLEU, or in
outputs.

An exception is a group of words or sentences in which the system with the higher BLEU is worse.
"""
GROUPS = {
    SUSPICIOUS: "outputs that are {}",
    "Words by frequency": "F1 of words that occur {} times",
    "Words by case": "F1 of words of the class “{}”",
    "Sentences by length": "BLEU of sentences of {}",
}
"""Maps the title of a table to a format string that describes the values of a row.

{} stands for the first cell of the row, as in "F1 of words that occur 2–4 times".
"""


def summary(comparison: Comparison, tables: Sequence[ReportTable]) -> list[str]:
    """Returns a sentence about the difference between each system and the first, or about
    the scores of a single system.

    For two systems with different scores, a further sentence names the groups in which the system
    with the higher BLEU is worse.

    tables: tables of the comparison
    """
    first, *others = comparison.outputs
    if others:
        scores = {test.score for test in comparison.tests["bleu"].values()}
        has_better = len(others) == 1 and len(scores) == 2
        exceptions = [_exceptions(comparison, tables)] if has_better else []
        return [*(_difference(comparison, first, other) for other in others), *exceptions]
    results = [
        f"{tests[first].score:.1f} ± {tests[first].confidence:.1f} {TITLES[metric]}"
        for metric, tests in comparison.tests.items()
    ]
    return [f"{first}: {' and '.join(results)}."]


def _difference(comparison: Comparison, first: str, other: str) -> str:
    """Returns a sentence about the difference in BLEU between two systems and its significance."""
    tests = comparison.tests["bleu"]
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
    chrf = comparison.tests["chrf"]
    if chrf[worse].score > chrf[better].score and max(chrf[other].probabilities) <= LEVEL:
        contradiction = f" In chrF, {worse} is significantly better, so no system is best."
    return (
        f"{better} is better than {worse} by {gap:.1f} BLEU ({scores}, {p_value}); human "
        f"judgements agree with such a difference in {agreement('bleu', gap):.0f} % of cases."
        f"{contradiction}"
    )


def _exceptions(comparison: Comparison, tables: Sequence[ReportTable]) -> str:
    """Returns a sentence that names the groups of words and sentences in which the system with
    the higher BLEU is worse.
    """
    tests = comparison.tests["bleu"]
    better, worse = sorted(comparison.outputs, key=lambda name: -tests[name].score)
    losses = []
    for table in tables:
        # Many suspicious outputs are bad, and high scores of a group are good.
        sign = 1 if table.title == SUSPICIOUS else -1
        for row in table.rows if table.title in GROUPS else []:
            # The last two columns belong to the two systems.
            cells = dict(zip(table.head[-2:], row[-2:], strict=True))
            gap = round(sign * (float(cells[better]) - float(cells[worse])), 1)
            group = GROUPS[table.title].format(row[0])
            losses.append((gap, f"{group} ({cells[better]} against {cells[worse]})"))
    largest = [text for gap, text in sorted(losses, reverse=True)[:EXCEPTIONS] if gap >= MARGIN]
    if largest:
        return f"{better} is worse in: {'; '.join(largest)}."
    return f"{better} is worse by {MARGIN:g} point or more in no group of words or sentences below."
