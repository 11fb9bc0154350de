"""Occlusion: influence of source words on the choice between two translations (Li et al. 2016)."""

from collections.abc import Sequence

import numpy as np

from nmt.foundation.interfaces import UNK
from nmt.inference.translator import Translator
from nmt.tokenizer.words import words


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
