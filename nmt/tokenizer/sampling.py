"""Random segmentation into subwords as a pure function of the seed and the text.

Implements subword regularisation (Kudo 2018) and BPE-dropout (Provilkov et al. 2020) with the
vocabulary and scores of a SentencePiece model. SentencePiece's own sampling cannot be seeded.

Subwords never cross the space before a word, so each word is segmented independently:

    unigram    P(x_1 … x_n) ∝ exp(α Σ_i score(x_i)) over all segmentations x_1 … x_n of a word;
               forward filtering, backward sampling

    bpe        merges in order of their score, each skipped with probability α
"""

import functools
import heapq
import itertools
import math
import random
import zlib
from collections.abc import Callable, Sequence

import sentencepiece

from nmt.foundation.interfaces import EOS, UNK
from nmt.tokenizer.sentencepiece_models import kind
from nmt.tokenizer.words import SPACE

CACHED_WORDS = 2**16
"""Maximum number of words whose subwords, or usual segmentations, are cached."""
CACHED_LENGTH = 20
"""Maximum number of characters of a word whose subwords are cached. Longer words, such as sentences
of scripts without spaces, rarely repeat and have many subwords."""
UNKNOWN_PENALTY = 10.0
"""Lowest subword score minus the score of an unknown character, as in SentencePiece."""
Draws = Callable[[], float]
"""Function that returns a random number in [0, 1)."""
Arc = tuple[int, float, list[int]]
"""Tuple (start, weight, token ids) of a subword. `start` is the index of its first character in the
word."""


class Sampler:
    """Sampler of random segmentations, with the scores of a SentencePiece model.

    model: trained SentencePiece model
    alpha: smoothing exponent of unigram, or dropout rate of BPE, as in SentencePiece
    """

    def __init__(self, model: sentencepiece.SentencePieceProcessor, alpha: float) -> None:
        self.model = model
        self.alpha = alpha
        self.merges = kind(model.serialized_model_proto()) == "bpe"
        size = model.get_piece_size()
        special = (model.is_control, model.is_unknown, model.is_byte)
        ordinary = [i for i in range(EOS + 1, size) if not any(is_kind(i) for is_kind in special)]
        self._scores = {model.id_to_piece(i): (model.get_score(i), i) for i in ordinary}
        self._bytes = {
            int(model.id_to_piece(i)[3:5], 16): i for i in range(size) if model.is_byte(i)
        }
        self._longest = max(map(len, self._scores), default=1)
        lowest = min((score for score, _ in self._scores.values()), default=0.0)
        self._unknown_score = lowest - UNKNOWN_PENALTY
        # Words repeat, so what does not depend on the draws is cached.
        cache = functools.lru_cache(CACHED_WORDS)
        self._cached_forward = cache(self._forward)
        self._usual = cache(self._usual_merges)

    def encode(self, lines: Sequence[str], seed: int) -> list[list[int]]:
        """Returns the token ids of each line, which depend only on the line and the seed."""
        cut = self._merged if self.merges else self._drawn
        ids_by_line = []
        for line in lines:
            key = (seed << 32) ^ zlib.crc32(line.encode("utf-8", "surrogatepass"))
            draws = random.Random(key).random
            texts = self.model.normalize(line).split(SPACE)
            words = [SPACE + text if n else text for n, text in enumerate(texts) if n or text]
            ids = [i for word in words for i in cut(word, draws)]
            # Adjacent unknown characters become a single UNK, as in SentencePiece.
            without_repeats = [
                i for n, i in enumerate(ids) if i != UNK or n == 0 or ids[n - 1] != UNK
            ]
            ids_by_line.append(without_repeats)
        return ids_by_line

    def _ids(self, symbol: str) -> list[int]:
        """Returns the id of a subword as a list; for an unknown character, its byte ids or UNK."""
        if symbol in self._scores:
            return [self._scores[symbol][1]]
        if self._bytes:
            return [self._bytes[byte] for byte in symbol.encode("utf-8", "surrogatepass")]
        return [UNK]

    # Unigram

    def _drawn(self, word: str, draws: Draws) -> list[int]:
        """Samples a segmentation of a word backwards, from its last subword to its first."""
        forward = self._cached_forward if len(word) <= CACHED_LENGTH else self._forward
        last_subwords = forward(word)
        ids: list[int] = []
        end = len(word)
        while end:
            remaining = draws()
            for begin, probability, piece in last_subwords[end]:  # noqa: B007 (read after the loop)
                remaining -= probability
                if remaining < 0:
                    break
            ids = piece + ids
            end = begin
        return ids

    def _forward(self, word: str) -> list[list[Arc]]:
        """Returns, for each prefix of a word, from the empty prefix to the word, the subwords that
        may end it. Their weights are their probabilities in a random segmentation of the prefix."""
        sums = [0.0]  # log-sum of the weights of all segmentations of each prefix
        last_subwords: list[list[Arc]] = [[]]
        for end in range(1, len(word) + 1):
            arcs = self._arcs(word, end)
            weights = [sums[begin] + score for begin, score, _ in arcs]
            # Subtracting the maximum prevents overflow of exp.
            highest = max(weights)
            log_sum = highest + math.log(sum(math.exp(weight - highest) for weight in weights))
            sums.append(log_sum)
            last_subwords.append(
                [
                    (begin, math.exp(weight - log_sum), ids)
                    for (begin, _, ids), weight in zip(arcs, weights, strict=True)
                ]
            )
        return last_subwords

    def _arcs(self, word: str, end: int) -> list[Arc]:
        """Returns the subwords of a word that end at a given character position. Their weights are
        log-probabilities, times the smoothing exponent α."""
        arcs = []
        for begin in range(max(0, end - self._longest), end):
            piece = word[begin:end]
            if piece in self._scores:
                arcs.append((begin, self.alpha * self._scores[piece][0], self._ids(piece)))
        last = word[end - 1]
        if last not in self._scores:
            arcs.append((end - 1, self.alpha * self._unknown_score, self._ids(last)))
        return arcs

    # BPE

    def _merged(self, word: str, draws: Draws) -> list[int]:
        usual, num_merges = self._usual(word)
        drawn = [draws() for _ in range(num_merges)]
        if all(number >= self.alpha for number in drawn):
            return usual  # sampling that skips no merge gives this segmentation
        return self._merge(word, itertools.chain(drawn, iter(draws, None)).__next__)

    def _usual_merges(self, word: str) -> tuple[list[int], int]:
        """Returns the token ids of a word with all BPE merges applied, and the number of merges."""
        turns = itertools.count(1)  # never below α ≤ 1, so no merge is skipped
        ids = self._merge(word, turns.__next__)
        return ids, next(turns) - 1

    def _merge(self, word: str, draw: Callable[[], float]) -> list[int]:
        """Merges adjacent symbols in order of descending score, from left to right for equal
        scores.

        word: word with its leading space symbol
        draw: function that returns the next number; a merge is skipped if its number is below the
            dropout rate
        """
        # A merged symbol is stored at its first position, and "" at the later positions.
        symbols = list(word)
        following = list(range(1, len(word) + 1))
        before = list(range(-1, len(word) - 1))
        agenda: list[tuple[float, int, int, str]] = []

        def propose(left: int, right: int) -> None:
            if left >= 0 and right < len(symbols):
                merged = symbols[left] + symbols[right]
                if merged in self._scores:
                    heapq.heappush(agenda, (-self._scores[merged][0], left, right, merged))

        for left in range(len(symbols) - 1):
            propose(left, left + 1)
        while agenda:
            _, left, right, merged = heapq.heappop(agenda)
            if symbols[left] + symbols[right] != merged or "" in (symbols[left], symbols[right]):
                continue  # one of the symbols has already been merged
            if draw() < self.alpha:
                continue
            symbols[left] = merged
            symbols[right] = ""
            following[left] = following[right]
            if following[right] < len(symbols):
                before[following[right]] = left
            propose(before[left], left)
            propose(left, following[left])
        return [i for symbol in filter(None, symbols) for i in self._ids(symbol)]
