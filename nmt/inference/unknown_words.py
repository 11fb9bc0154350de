"""Replacement of unknown words in translations (Luong, Sutskever et al. 2015; Jean et al. 2015).

mark    keeps ⁇, with which the tokenizer marks an unknown word
drop    removes the word; a translation of unknown words only is empty
copy    inserts the source word with the greatest attention, or its translation in a lexicon
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK

Unknown = Literal["mark", "drop", "copy"]
MARK = "⁇"


def read_lexicon(path: str) -> dict[str, str]:
    """Reads a lexicon file, whose lines consist of a source word, a tab and a translation.

    If a source word has several lines, the first line is used. Raises UserError with the line
    number for a malformed line.
    """
    file = find_file(path)
    lexicon: dict[str, str] = {}
    for number, line in enumerate(stream_lines(file), 1):
        word, tab, translation = line.partition("\t")
        if not tab or not word.strip() or "\t" in translation:
            raise UserError(
                f"{file}, line {number:,}: expected a source word, a tab and its translation"
            )
        lexicon.setdefault(word.strip(), translation.strip())
    return lexicon


def filled(
    text: str,
    tokens: Sequence[int],
    weights: np.ndarray | None,
    piece_words: Sequence[range],
    words: Sequence[str],
    lexicon: Mapping[str, str],
) -> str:
    """Returns a translation with its unknown words replaced.

    text: translation, with the mark ⁇ for each unknown token
    tokens: token ids of the translation
    weights: [tokens + EOS, source tokens + EOS] attention weights; None drops unknown words
    piece_words: range of source words (from 0) to which each source token belongs
    words: source words
    lexicon: translations of source words; words that are not in the lexicon are copied

    Adjacent unknown tokens that attend to the same source word are replaced by one word.
    """
    parts = text.split(MARK)
    unknown_steps = [step for step, token in enumerate(tokens) if token == UNK]
    if len(parts) != len(unknown_steps) + 1:
        return text  # the mark is also a word of the text
    # parts[n] is the text before the n-th unknown word.
    written = parts[0]
    previous: range | None = None
    for step, rest in zip(unknown_steps, parts[1:], strict=True):
        if weights is not None and piece_words:
            attended = piece_words[int(weights[step, : len(piece_words)].argmax())]  # without EOS
            if attended != previous or not written.strip():
                word = "".join(words[attended.start : attended.stop])
                written += f" {lexicon.get(word, word)} "
            previous = None if rest.strip() else attended
        written += rest
    return re.sub(" +", " ", written).strip(" ")
