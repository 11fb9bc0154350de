"""Effect of hiding words of the input: occlusion for translations (Li et al. 2016), removal of
words for classifications."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.drawing import FIGURES
from nmt.drawing.word_importance import Classified, write_explanations
from nmt.foundation.interfaces import UNK
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translator import Translator
from nmt.tokenizer.words import without, words


def influence(
    translator: Translator, line: str, first: Sequence[int], second: Sequence[int]
) -> list[float]:
    """Returns the influence of each source word on the choice of the first of two translations.

    The influence of a word is the decrease of log p(first) - log p(second), in nats, when the
    word's subwords are replaced by the unknown token.

    line: source sentence
    first, second: target token ids of both translations
    """
    [source] = translator.encode([line])
    piece_words = translator.tokenizer.source_words(line, source)
    sources = [source]
    for number in range(len(words(line))):
        pieces = zip(source, piece_words, strict=True)
        sources.append([UNK if number in its_words else piece for piece, its_words in pieces])
    # [1 + words]: the complete line, then the line without each word
    margins = _log_probs(translator, sources, first) - _log_probs(translator, sources, second)
    return (margins[0] - margins[1:]).tolist()


def _log_probs(
    translator: Translator, sources: Sequence[Sequence[int]], target: Sequence[int]
) -> np.ndarray:
    """Returns the log-probability of one translation given each of several sources, [sources]."""
    targets = [list(target)] * len(sources)
    decodings = translator.force(sources, targets, attention=False)
    return np.array([decoding.log_prob for decoding in decodings])  # [1 + words]


LONGEST = 60
"""Maximum number of words of a text for which the effect of removing each word is computed."""
TEXTS = 100
"""Maximum number of texts of an HTML page for which the effects of word removal are computed."""
DRAWS = 5
"""Number of random choices of words per text, over which the decrease is averaged."""


@dataclass(frozen=True)
class Removal:
    """Result of `removal`: mean decrease of the predicted label's probability when words are
    removed.

    most_important: decrease when the most important words are removed, 0 to 1
    random: decrease when as many random words are removed, 0 to 1
    texts: number of texts in the comparison
    """

    most_important: float
    random: float
    texts: int

    @property
    def clause(self) -> str:
        """Clause of a sentence that states how far word removal lowers the label's probability."""
        return (
            "removing the 3 most important words lowers the probability of the predicted label "
            f"by {100 * self.most_important:.1f} percentage points, removing 3 random words by "
            f"{100 * self.random:.1f}"
        ).replace(" -", " −")


def write_effects(
    classifier: TextClassifier,
    answers: Sequence[Classified],
    path: Path,
    gold: Sequence[Sequence[str]] | None = None,
) -> None:
    """Writes classified texts to a file; an HTML page also shows the effect of removing each word.

    classifier: classifier of the texts, with attention
    answers: classified texts, whose units are words
    path: output file; .json, .png, .pdf and .svg files do not show the effects
    gold: correct labels of each text; None if unknown
    """
    if path.suffix in (".json", *FIGURES):
        write_explanations(answers, path, gold)
        return
    gap = removal(classifier, [answer.line for answer in answers[:TEXTS]])
    lead = [f"On average over {gap.texts} texts, {gap.clause}."] if gap.texts else []
    if len(answers) > TEXTS:
        lead.append(f"Only the first {TEXTS} texts show the effects of removing single words.")
    effects = [word_effects(classifier, answer) for answer in answers[:TEXTS]]
    write_explanations(answers, path, gold, effects, lead)


def word_effects(classifier: TextClassifier, answer: Classified) -> list[float]:
    """Returns, for each word, the change in the predicted label's probability if only this word is
    removed.

    The result is empty for a text with a single word or with more than LONGEST words.

    classifier: classifier of the text
    answer: classified text
    """
    if not 1 < len(answer.words) <= LONGEST:
        return []
    positions = range(len(answer.words))
    # The difference from 0, unlike a minus sign, makes no -0.0 of a word without effect.
    return (0.0 - _decreases(classifier, [answer] * len(positions), positions)).tolist()


def removal(classifier: TextClassifier, lines: Sequence[str], count: int = 3) -> Removal:
    """Compares the effect of removing the most important words of each text with the effect of
    removing random words.

    classifier: classifier with attention
    lines: texts; texts with fewer than 2 · `count` words are left out
    count: number of words to remove from each text
    """
    answers = [
        answer
        for answer in classifier.classify(lines)
        if answer.importances is not None and len(answer.words) >= 2 * count
    ]
    if not answers:
        return Removal(0.0, 0.0, 0)
    important = [
        np.argsort(-answer.importances, kind="stable")[:count]  # type: ignore[operator]
        for answer in answers
    ]
    generator = np.random.default_rng(0)
    random_decreases = []
    for _ in range(DRAWS):
        drawn = [generator.choice(len(a.words), count, replace=False) for a in answers]
        random_decreases.append(_decreases(classifier, answers, drawn).mean())
    return Removal(
        most_important=float(_decreases(classifier, answers, important).mean()),
        random=float(np.mean(random_decreases)),
        texts=len(answers),
    )


def _decreases(
    classifier: TextClassifier,
    answers: Sequence[Classified],
    removed: Iterable[int | np.ndarray],
) -> np.ndarray:
    """Returns the decrease of the predicted label's probability when the given words are removed,
    [texts].

    answers: predictions for the complete texts
    removed: index or indices of the words to remove from each text
    """
    before = [answer.probabilities[answer.likeliest] for answer in answers]
    shortened = [without(a.line, np.ravel(n)) for a, n in zip(answers, removed, strict=True)]
    columns = [classifier.model.labels.names.index(answer.likeliest) for answer in answers]
    # Probability that each shortened text gets the label predicted for the complete text, [texts]
    after = classifier.probabilities(shortened)[np.arange(len(answers)), columns]
    return before - after
