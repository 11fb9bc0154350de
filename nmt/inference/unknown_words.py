"""What is written for words that the target vocabulary does not have (Luong, Sutskever et al. 2015; Jean et al. 2015).

mark    ⁇, as the tokenizer writes it
drop    nothing; a translation of unknown words only is empty
copy    the source word that is attended to most, or what a lexicon has for it
"""

from __future__ import annotations

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
    """A word of the source and its translation on each line, with a tab between them; the first of a word counts.

    Raises UserError naming file and line for anything else.
    """
    file, found = find_file(path), dict[str, str]()
    for number, line in enumerate(stream_lines(file), 1):
        word, tab, translation = line.partition("\t")
        if not tab or not word.strip() or "\t" in translation:
            raise UserError(f"{file}, line {number:,}: not a word, a tab and its translation")
        found.setdefault(word.strip(), translation.strip())
    return found


def filled(
    text: str,
    tokens: Sequence[int],
    weights: np.ndarray | None,
    places: Sequence[range],
    words: Sequence[str],
    lexicon: Mapping[str, str],
) -> str:
    """A translation with something for its unknown words. weights: attention [tokens, source pieces] (None: drop them);
    places: the words that each source piece is a part of. Unknown pieces in a row that look at the same word are one."""
    parts = text.split(MARK)
    unknown = [t for t, token in enumerate(tokens) if token == UNK]
    if len(parts) != len(unknown) + 1:
        return text  # the mark is a word of the text
    written, before = parts[0], None
    for t, rest in zip(unknown, parts[1:], strict=True):
        its = (
            None
            if weights is None or not places
            else places[int(weights[t, : len(places)].argmax())]
        )
        if its is not None and (its != before or written.strip() == ""):
            word = "".join(words[its.start : its.stop])
            written += f" {lexicon.get(word, word)} "
        written += rest
        before = its if not rest.strip() else None
    return re.sub(" +", " ", written).strip(" ")
