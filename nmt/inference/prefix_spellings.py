"""Spellings of a given prefix of a translation: all subword sequences that spell the prefix.

The last subword may extend beyond the prefix, so that a prefix can end inside a word.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping

from nmt.foundation.interfaces import EOS
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import SPACE

BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
"""Regular expression for byte tokens, such as `<0x0A>`, whose names are not text."""
LAST_CHARACTER = "\U0010ffff"
"""Last Unicode character, the upper bound of a binary search in the sorted subwords."""


class PrefixSpeller:
    """Finder of all subword sequences that spell a prefix, in the target vocabulary of a
    tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = list(range(EOS + 1, tokenizer.target_size))
        self._ids = dict(zip(tokenizer.target_pieces(ids), ids, strict=True))
        self._pieces = sorted(self._ids)
        self._longest = max(map(len, self._pieces))

    def spellings(self, prefix: str) -> tuple[Mapping[int, int], ...]:
        """Returns the allowed tokens at each character position of the normalised prefix.

        Entry i maps each token that may begin at position i to the position after the token. The
        prefix is complete at position `len(result)`. The result is empty for a prefix without
        words. Entry 0 is empty if the vocabulary cannot spell the prefix.
        """
        text = self.tokenizer.target_spelling(prefix)
        if not text:
            return ()
        if prefix[-1].isspace():
            text += SPACE  # the last word is complete
        # at each character position: token → position after the token
        graph: list[dict[int, int]] = [{} for _ in text]
        for start in reversed(range(len(text))):
            for end in range(start + 1, min(len(text), start + self._longest + 1)):
                token = self._ids.get(text[start:end])
                # Skip positions from which the end of the prefix cannot be reached.
                if token is not None and graph[end]:
                    graph[start][token] = end
            for token in self._beginning_with(text[start:]):
                graph[start][token] = len(text)
        return tuple(graph)

    def _beginning_with(self, text: str) -> list[int]:
        """Returns the ids of the tokens that begin with `text`, including a token equal to
        `text`."""
        first = bisect_left(self._pieces, text)
        last = bisect_left(self._pieces, text + LAST_CHARACTER)
        return [
            self._ids[piece]
            for piece in self._pieces[first:last]
            if piece == text or not BYTE_PIECE.fullmatch(piece)
        ]
