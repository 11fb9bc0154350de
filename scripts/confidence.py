"""Measures how well the marks of the web page find bad translations.

    python scripts/confidence.py RUN_DIR SOURCE REFERENCE

Translates SOURCE with the search of the run, and compares each translation with its line of REFERENCE by sentence
chrF. The quarter of the translations with the lowest chrF counts as bad. Prints, for each mark, how well it separates
bad translations from the others: the area under the ROC curve (AUC; 0.5 is chance, 1 is perfect). Also prints the mean
chrF by level of confidence. results/confidence.md has the figures.
"""

import argparse
from pathlib import Path

import numpy as np
import sacrebleu

import nmt
from nmt.data.lines import read_lines
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.inference.word_alignment import word_alignment

UNSURE = 0.3
"""Probability below which the page marks a word, as in nmt/serving/page/units.js."""
UNATTENDED = 0.15
"""Sum of attention weights below which the page marks a source word, as in units.js."""
LEVELS = {"high": (0.6, 1.0), "medium": (0.45, 0.6), "low": (0.0, 0.45)}
"""Range of the mean probability of each level of confidence, as in units.js."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("reference")
    arguments = parser.parse_args()
    sources = read_lines(Path(arguments.source))
    references = read_lines(Path(arguments.reference))
    translator = nmt.load(arguments.model, device="cpu")
    assert isinstance(translator, Translator)
    translations = translator.translations(sources, None, 1)
    chrf = np.array(
        [
            sacrebleu.sentence_chrf(translation.texts[0], [reference]).score
            for translation, reference in zip(translations, references, strict=True)
        ]
    )
    marks = [
        marks_of(translator, source, translation)
        for source, translation in zip(sources, translations, strict=True)
    ]
    is_bad = chrf <= np.quantile(chrf, 0.25)
    print(
        f"{len(chrf):,} translations, mean chrF {chrf.mean():.1f}; bad: chrF up to {chrf[is_bad].max():.1f}"
    )
    for name in marks[0]:
        values = np.array([mark[name] for mark in marks])
        correlation = np.corrcoef(rank(values), rank(-chrf))[0, 1]
        print(f"{name}: AUC {auc(values, is_bad):.3f}, rank correlation {correlation:.2f}")
    means = np.exp([-mark["mean log-probability, negative"] for mark in marks])
    for level, (least, limit) in LEVELS.items():
        chosen = chrf[(means >= least) & (means < limit)]
        mean = chosen.mean() if len(chosen) else float("nan")
        print(f"confidence {level}: {len(chosen):,} translations, mean chrF {mean:.1f}")


def marks_of(translator: Translator, source: str, translation: Translation) -> dict[str, float]:
    """Returns the marks of a translation on the page; a larger value is a less certain translation."""
    decoding = translation.details[0]
    tokens = translation.hypotheses[0].tokens
    log_probs = decoding.log_probs.astype(float)
    words, word_of = translator.tokenizer.target_units(translation.texts[0], tokens)
    by_word = np.zeros(len(words))
    for places, value in zip(word_of, log_probs[:-1], strict=True):
        by_word[places.start] += value
    values = {
        "mean log-probability, negative": -log_probs.mean(),
        "lowest log-probability of a word, negative": -by_word.min(initial=0),
        "share of words marked as uncertain": np.mean(np.exp(by_word) < UNSURE)
        if len(words)
        else 1,
    }
    if decoding.weights is not None:
        alignment = word_alignment(translator.tokenizer, source, translation, 0)
        sums = alignment.weights.sum(0) + alignment.at_end  # [source words]
        values["share of source words marked as possibly untranslated"] = np.mean(sums < UNATTENDED)
    return {name: float(value) for name, value in values.items()}


def auc(values: np.ndarray, is_bad: np.ndarray) -> float:
    """Returns the probability that a bad translation has a larger value than another one; ties count half."""
    ranks = rank(values)
    bad = is_bad.sum()
    return float((ranks[is_bad].sum() - bad * (bad - 1) / 2) / (bad * (~is_bad).sum()))


def rank(values: np.ndarray) -> np.ndarray:
    """Returns the ranks of values, from 0; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[inverse]


if __name__ == "__main__":
    main()
