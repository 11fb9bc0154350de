"""Random segmentations as a pure function of (seed, text): subword regularisation (Kudo 2018) and BPE-dropout (Provilkov
et al. 2020), over SentencePiece's vocabulary and scores. SentencePiece's own sampler is not fixed by a seed.

Pieces never cross the space before a word, so each word is cut by itself:

    unigram    P(x_1 … x_n) ∝ exp(α Σ_i score(x_i)) over all ways to cut the word: forward filtering, backward sampling
    bpe        the usual merges in the order of their rank, each left out with probability α when its turn comes
"""

import bisect
import heapq
import math
import zlib
from collections.abc import Callable, Sequence

import sentencepiece

from nmt.foundation.interfaces import EOS, UNK
from nmt.tokenizer.words import SPACE

MOST = 512
"""Cuts of a word up to which all of them are listed, with their probabilities."""
UNKNOWN_PENALTY = 10.0
"""How much less than the least probable piece an unknown character scores in SentencePiece."""
_MASK = 2**64 - 1


class Draws:
    """Uniform random numbers in [0, 1) from a key: SplitMix64 (Steele et al. 2014)."""

    def __init__(self, key: int) -> None:
        self._state = key & _MASK

    def __call__(self) -> float:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


class Sampler:
    """Cuts text into random pieces of a trained model, with `alpha` as SentencePiece understands it."""

    def __init__(
        self, model: sentencepiece.SentencePieceProcessor, alpha: float, merges: bool
    ) -> None:
        self.model, self.alpha, self.merges = model, alpha, merges
        size = model.get_piece_size()
        ordinary = [
            i
            for i in range(EOS + 1, size)
            if not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i))
        ]
        self._scores = {model.id_to_piece(i): (model.get_score(i), i) for i in ordinary}
        self._bytes = {
            int(model.id_to_piece(i)[3:5], 16): i for i in range(size) if model.is_byte(i)
        }
        self._longest = max(map(len, self._scores), default=1)
        self._unknown = (
            min((score for score, _ in self._scores.values()), default=0.0) - UNKNOWN_PENALTY
        )
        self._lists: dict[str, tuple[list[float], list[list[int]]] | None] = {}
        self._usual: dict[str, tuple[list[int], int]] = {}

    def encode(self, lines: Sequence[str], seed: int) -> list[list[int]]:
        """Ids of each line; the same line with the same seed is cut the same way, whatever lines are beside it."""
        cut = self._merged if self.merges else self._drawn
        found = []
        for line in lines:
            draws = Draws((seed << 32) ^ zlib.crc32(line.encode("utf-8", "surrogatepass")))
            ids: list[int] = []
            for word in _words(self.model.normalize(line)):
                ids += cut(word, draws)
            found.append(_one_unknown(ids))
        return found

    def _of_character(self, character: str) -> list[int]:
        """Ids of a character that is no piece."""
        if self._bytes:
            return [self._bytes[byte] for byte in character.encode("utf-8", "surrogatepass")]
        return [UNK]

    # Unigram

    def _drawn(self, word: str, draws: Draws) -> list[int]:
        if word not in self._lists:
            self._lists[word] = self._listed(word)
        listed = self._lists[word]
        if listed is None:
            return self._backward(word, draws)
        sums, cuts = listed
        return cuts[min(bisect.bisect_right(sums, draws() * sums[-1]), len(cuts) - 1)]

    def _arcs(self, word: str, end: int) -> list[tuple[int, float, list[int]]]:
        """(begin, α · score, ids) of each piece of the word that ends there."""
        found = []
        for begin in range(max(0, end - self._longest), end):
            known = self._scores.get(word[begin:end])
            if known is not None:
                found.append((begin, self.alpha * known[0], [known[1]]))
        if word[end - 1] not in self._scores:
            found.append((end - 1, self.alpha * self._unknown, self._of_character(word[end - 1])))
        return found

    def _listed(self, word: str) -> tuple[list[float], list[list[int]]] | None:
        """All ways to cut a word, with sums of their weights; None if there are too many."""
        ways: list[list[tuple[float, list[int]]]] = [[(0.0, [])]]
        for end in range(1, len(word) + 1):
            here = [
                (w + score, [*ids, *piece])
                for begin, score, piece in self._arcs(word, end)
                for w, ids in ways[begin]
            ]
            if len(here) > MOST:
                return None
            ways.append(here)
        highest, total, sums = max(w for w, _ in ways[-1]), 0.0, []
        for weight, _ in ways[-1]:
            total += math.exp(weight - highest)
            sums.append(total)
        return sums, [ids for _, ids in ways[-1]]

    def _backward(self, word: str, draws: Draws) -> list[int]:
        """One way, from sums over all ways to each position."""
        sums, arcs = [0.0], [list[tuple[int, float, list[int]]]()]
        for end in range(1, len(word) + 1):
            arcs.append(self._arcs(word, end))
            weights = [sums[begin] + score for begin, score, _ in arcs[end]]
            highest = max(weights)
            sums.append(highest + math.log(sum(math.exp(w - highest) for w in weights)))
        ids, end = list[int](), len(word)
        while end:
            left = draws()
            begin, piece = 0, list[int]()
            for begin, score, piece in arcs[end]:  # noqa: B007 (the arc that was drawn)
                left -= math.exp(sums[begin] + score - sums[end])
                if left < 0:
                    break
            ids[:0] = piece
            end = begin
        return ids

    # BPE

    def _merged(self, word: str, draws: Draws) -> list[int]:
        if word not in self._usual:
            turns = [0]

            def count() -> float:
                turns[0] += 1
                return 1.0

            self._usual[word] = self._merge(word, count), turns[0]
        usual, turns_ = self._usual[word]
        drawn = [
            draws() for _ in range(turns_)
        ]  # if no merge of the usual way is left out, that way is the result
        if all(number >= self.alpha for number in drawn):
            return usual
        again = iter(drawn)
        return self._merge(word, lambda: next(again, None) or draws())

    def _merge(self, word: str, draw: Callable[[], float]) -> list[int]:
        """Merges neighbours, those with the highest score first, and of equal ones the leftmost."""
        symbols, following = list(word), list(range(1, len(word) + 1))
        before = list(range(-1, len(word) - 1))
        agenda: list[tuple[float, int, int, str]] = []

        def propose(left: int, right: int) -> None:
            if left >= 0 and right < len(symbols):
                both = symbols[left] + symbols[right]
                if both in self._scores:
                    heapq.heappush(agenda, (-self._scores[both][0], left, right, both))

        for left in range(len(symbols) - 1):
            propose(left, left + 1)
        while agenda:
            _, left, right, both = heapq.heappop(agenda)
            if symbols[left] + symbols[right] != both or not symbols[left] or not symbols[right]:
                continue  # one of them has become part of another piece
            if draw() < self.alpha:
                continue
            symbols[left], symbols[right] = both, ""
            following[left] = following[right]
            if following[right] < len(symbols):
                before[following[right]] = left
            propose(before[left], left)
            propose(left, following[left])
        ids = list[int]()
        for symbol in filter(None, symbols):
            ids += (
                [self._scores[symbol][1]] if symbol in self._scores else self._of_character(symbol)
            )
        return ids


def _words(text: str) -> list[str]:
    """A text with ▁ for spaces, cut before each of them."""
    return [SPACE + part if i else part for i, part in enumerate(text.split(SPACE)) if i or part]


def _one_unknown(ids: list[int]) -> list[int]:
    """Unknown characters beside each other are one unknown piece, as in SentencePiece."""
    if UNK not in ids:
        return ids
    return [i for n, i in enumerate(ids) if i != UNK or n == 0 or ids[n - 1] != UNK]
