"""Explanations of a ranking table: the notes below it in a report, and its caption in a paper."""

from collections.abc import Sequence

from nmt.analysis.ranking import TESTED, Ranking
from nmt.analysis.significance import names_of_tests
from nmt.analysis.tables import BOLD
from nmt.foundation.extras import installed
from nmt.metric import TITLES


def is_compared(ranking: Ranking, columns: Sequence[str]) -> bool:
    """Returns whether a table compares the scores of several configurations."""
    return len(ranking.rows) > 1 and ranking.metric in columns


def report_notes(ranking: Ranking, columns: Sequence[str]) -> str:
    """Returns the notes below the ranking table, which explain its columns."""
    has_several = is_compared(ranking, columns)
    has_seeds = "p seeds" in columns
    bold = (
        "the best configuration, and tested configurations that are not significantly worse at "
        "the 5 % level; of two tests over sentences, the larger p-value counts."
        if ranking.is_tested
        else "the best configuration. No significance test was made, so any other "
        "configuration may be equally good."
    )
    explanations = [
        _seeds(ranking, columns),
        _signatures(ranking, columns),
        _leaks(ranking),
        _repeats(ranking),
        f"{BOLD} {bold}" if has_several else "",
        "p (seeds) is the p-value over seeds: Tukey's range test against the best configuration "
        "with several seeds, corrected for all pairs."
        if has_seeds
        else "",
        "The significance test over seeds needs SciPy: pip install '.[sweep]'."
        if has_several and not has_seeds and not installed("scipy")
        else "",
        "The tests over test sentences support only BLEU (metric=bleu) and chrF (metric=chrf)."
        if has_several and ranking.metric not in TESTED
        else "",
        _sentence_tests(ranking) if "p sentences" in columns else "",
    ]
    return " ".join(filter(None, explanations))


def paper_caption(ranking: Ranking, columns: Sequence[str]) -> str:
    """Returns short explanations of the columns, for the caption of the LaTeX table."""
    bold = "and scores that are not significantly worse (5 %)" if ranking.is_tested else "untested"
    results = [row.over_sentences for row in ranking.rows if row.over_sentences]
    explanations = [
        _seeds(ranking, columns),
        f"Bold: the best, {bold}." if is_compared(ranking, columns) else "",
        "p seeds: Tukey's range test against the best with several seeds."
        if "p seeds" in columns
        else "",
        f"p sentences: {names_of_tests(results)}." if "p sentences" in columns else "",
        _signatures(ranking, columns),
        _leaks(ranking),
    ]
    return " ".join(filter(None, explanations))


def _seeds(ranking: Ranking, columns: Sequence[str]) -> str:
    """Returns a sentence that explains the scores. The sentence contains the number of seeds,
    unless the table has the column `n` (number of seeds).
    """
    counts = [len(row.runs) for row in ranking.rows]
    if max(counts) > 1:
        extremes = sorted({min(counts), max(counts)})
        number = "the" if "n" in columns else " to ".join(map(str, extremes))
        return f"Scores are means ± sample standard deviations over {number} seeds."
    return "Scores are of one seed." if "n" not in columns else ""


def _signatures(ranking: Ranking, columns: Sequence[str]) -> str:
    """Returns a sentence with the sacreBLEU signatures of each score in the ranking table."""
    texts = dict.fromkeys(
        f"{TITLES.get(name, name)} {run.signatures[name]}"
        for name in columns
        for run in ranking.runs
        if run.signatures.get(name)
    )
    return f"Signatures: {'; '.join(texts)}." if texts else ""


def _leaks(ranking: Ranking) -> str:
    """Returns a sentence about test pairs in the training text; empty without such pairs."""
    counts = {run.leaked for run in ranking.runs if run.answers is None}
    if not any(counts):
        return ""
    # Runs without a test set do not store the validation references.
    # A sentence with several references counts as several pairs.
    size = sum(bool(line.strip()) for lines in ranking.runs[0].references for line in lines)
    total = f" of {size:,}" if size else ""
    number = f"{'Up to ' * (len(counts) > 1)}{max(counts):,}{total}"
    return f"{number} {ranking.part} pairs are also training pairs, which raises the scores."


def _repeats(ranking: Ranking) -> str:
    """Returns a sentence that lists repeated runs (same configuration and seed); empty without
    repeats.
    """
    folders = [str(run.folder) for row in ranking.rows for run in row.repeats]
    if not folders:
        return ""
    return (
        "Repeats are left out, because another run has the same configuration and seed: "
        f"{', '.join(folders)}."
    )


def _sentence_tests(ranking: Ranking) -> str:
    """Returns a text that explains the significance tests over test sentences."""
    results = [row.over_sentences for row in ranking.rows if row.over_sentences]
    tests = names_of_tests(results, " · approximate randomisation")
    largest = max(result.confidence for result in results)
    return (
        f"p (sentences) is the p-value over test sentences: {tests}, for the seed with the best "
        "validation score. The 95 % confidence interval of a score over sentences is "
        f"± {largest:.1f} or less."
    )
