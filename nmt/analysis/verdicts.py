"""Sentences that state the main result of a report or of a comparison of systems."""

from collections.abc import Mapping, Sequence

from nmt.analysis.comparison import BY_CASE, BY_FREQUENCY, BY_LENGTH, SUSPICIOUS, Comparison
from nmt.analysis.ranking import Ranking
from nmt.analysis.run_results import Configuration
from nmt.analysis.significance import LEVEL, agreement, as_chances, as_largest, as_spread
from nmt.analysis.tables import ReportTable, number_in
from nmt.metric import LOWER_IS_BETTER, TITLES

LOSSES = 3
"""Maximum number of groups in the sentence about groups in which the better system is worse."""
MARGIN = 1.0
"""Minimum difference for naming a group in which the better system is worse.

The unit is percentage points of F1 or BLEU, or a number of outputs.
"""
GROUPS: Mapping[str, str] = {
    SUSPICIOUS: "outputs that are {}",
    BY_FREQUENCY: "F1 of words that occur {} times",
    BY_CASE: "F1 of words of the class “{}”",
    BY_LENGTH: "BLEU of sentences of {}",
}
"""Maps the title of a table to the description of a row of this table."""


def of_ranking(ranking: Ranking) -> str:
    """Returns a sentence about the best configuration, and its difference from the worst
    configuration.
    """
    best, *others = ranking.rows
    unit = TITLES.get(ranking.metric, ranking.metric)
    score = f"{as_spread(best.scores(ranking.metric), 1)} {unit} on the {ranking.part} set"
    if not others:
        return f"{best.label if best.values else best.runs[0].folder.name}: {score}."
    if len({f"{ranking.mean(row):.2f}" for row in ranking.rows}) == 1:
        return f"All {len(ranking.rows)} configurations have the same score: {score}."
    similar = [row for row in others if ranking.may_be_best(row)]
    names = similar[0].label if len(similar) == 1 else f"{len(similar)} other configurations"
    equal = f", not distinguishable from {names}" if similar else ""
    sentence = f"{best.label} is best: {score}{equal}"
    if len(similar) == len(others):
        return f"{sentence}."
    worst = others[-1]
    direction = "higher" if ranking.metric in LOWER_IS_BETTER else "lower"
    gap = abs(ranking.mean(best) - ranking.mean(worst))
    return f"{sentence}; {worst.label} is {gap:.1f} {direction} ({_p_values(best, worst)})."


def _p_values(best: Configuration, worst: Configuration) -> str:
    """Returns the p-values of the difference of two configurations, over seeds and over
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


def of_comparison(comparison: Comparison, tables: Sequence[ReportTable]) -> list[str]:
    """Returns sentences about the difference of each system from the first system.

    For two systems, a further sentence names the groups in which the better system is worse.

    comparison: systems and significance tests
    tables: tables of the comparison
    """
    first, *others = comparison.outputs
    if not others:
        results = [
            f"{tests[first].score:.1f} ± {tests[first].confidence:.1f} {TITLES[metric]}"
            for metric, tests in comparison.tests.items()
        ]
        return [f"{first}: {' and '.join(results)}."]
    sentences = [_difference(comparison, first, other) for other in others]
    if len(others) == 1:
        sentences.append(_losses(comparison, tables))
    return sentences


def _difference(comparison: Comparison, first: str, other: str) -> str:
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
    result = (
        f"{better} is better than {worse} by {gap:.1f} BLEU ({scores}, {p_value}); human "
        f"judgements agree with such a difference in {agreement('bleu', gap):.0f} % of cases."
    )
    return result + _contradiction(comparison, better, worse, other)


def _contradiction(comparison: Comparison, better: str, worse: str, other: str) -> str:
    """Returns a sentence if the system with the lower BLEU has a significantly higher chrF,
    otherwise "".
    """
    tests = comparison.tests["chrf"]
    is_significant = max(tests[other].probabilities) <= LEVEL
    if tests[worse].score <= tests[better].score or not is_significant:
        return ""
    return f" In chrF, {worse} is significantly better, so no system is best."


def _losses(comparison: Comparison, tables: Sequence[ReportTable]) -> str:
    """Returns a sentence about the groups of words and sentences in which the better system is
    worse.
    """
    tests = comparison.tests["bleu"]
    better, worse = sorted(tests, key=lambda name: -tests[name].score)
    losses = []
    for table in tables:
        sign = 1 if table.title == SUSPICIOUS else -1
        for row in table.rows if table.title in GROUPS else []:
            cells = dict(zip(table.head, row, strict=True))
            gap = sign * ((number_in(cells[better]) or 0) - (number_in(cells[worse]) or 0))
            group = GROUPS[table.title].format(row[0])
            losses.append((gap, f"{group} ({cells[better]} against {cells[worse]})"))
    largest = [text for gap, text in sorted(losses, reverse=True)[:LOSSES] if gap >= MARGIN]
    return (
        f"{better} is worse in: {'; '.join(largest)}."
        if largest
        else f"{better} is worse by {MARGIN:g} point or more in no group of words or sentences "
        "below."
    )
