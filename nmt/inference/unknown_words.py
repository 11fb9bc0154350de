"""Replacement of words that the target vocabulary does not have (Luong, Sutskever et al. 2015; Jean
et al. 2015).

mark    ⁇, as the tokenizer writes it
drop    nothing; a translation of unknown words only is empty
copy    the source word with the greatest attention, or its translation in a lexicon
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
    """Reads lines of a source word, a tab and its translation; the first line of a word counts.

    Raises UserError naming file and line for anything else.
    """
    file = find_file(path)
    lexicon: dict[str, str] = {}
    for number, line in enumerate(stream_lines(file), 1):
        word, tab, translation = line.partition("\t")
        if not tab or not word.strip() or "\t" in translation:
            raise UserError(f"{file}, line {number:,}: expected a word, a tab and its translation")
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

    text: translation, with a MARK for each unknown token
    tokens: ids of the translation
    weights: [tokens + EOS, source pieces + EOS] attention (None: unknown words are dropped)
    piece_words: numbers of the words that each source piece is part of
    words: source words
    lexicon: translations of source words; other words are copied

    Adjacent unknown tokens that attend to the same word become one word.
    """
    parts = text.split(MARK)
    unknown_steps = [step for step, token in enumerate(tokens) if token == UNK]
    if len(parts) != len(unknown_steps) + 1:
        return text  # the mark is a word of the text
    # parts[n] stands before the n-th unknown word
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
