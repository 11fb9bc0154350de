"""Spellings of a text that a translation begins with: all sequences of pieces that agree with it.

The last piece may go beyond the text, so that a prefix can end inside a word.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping

from nmt.foundation.interfaces import EOS
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import SPACE

BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
"""Name of a piece that is a byte; its characters are not text."""
LAST_CHARACTER = "\U0010ffff"
"""Character after all characters of pieces in their order."""


class PrefixSpeller:
    """Speller of prefixes with the target pieces of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = list(range(EOS + 1, tokenizer.target_size))
        self._ids = dict(zip(tokenizer.target_pieces(ids), ids, strict=True))
        self._pieces = sorted(self._ids)
        self._longest = max(map(len, self._pieces))

    def spellings(self, prefix: str) -> tuple[Mapping[int, int], ...]:
        """Returns, for each position of the normalised prefix, the tokens that may follow there and
        the position after each of them. The prefix is complete at a position beyond the last one.

        The result is empty for a prefix without words. A prefix that no pieces spell has no tokens
        at its first position.
        """
        text = self.tokenizer.target_spelling(prefix)
        if not text:
            return ()
        if prefix[-1].isspace():
            text += SPACE  # the last word is complete
        # from each character, token → next character
        graph: list[dict[int, int]] = [{} for _ in text]
        for start in reversed(range(len(text))):
            for end in range(start + 1, min(len(text), start + self._longest + 1)):
                token = self._ids.get(text[start:end])
                # A position from which the end cannot be reached is left out.
                if token is not None and graph[end]:
                    graph[start][token] = end
            for token in self._beginning_with(text[start:]):
                graph[start][token] = len(text)
        return tuple(graph)

    def _beginning_with(self, text: str) -> list[int]:
        """Tokens whose piece begins with a text, or is that text."""
        first = bisect_left(self._pieces, text)
        last = bisect_left(self._pieces, text + LAST_CHARACTER)
        return [
            self._ids[piece]
            for piece in self._pieces[first:last]
            if piece == text or not BYTE_PIECE.fullmatch(piece)
        ]
