"""Lexical constraints on translations: a prefix, required phrases and forbidden phrases."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from nmt.data.text_encoding import check_lines
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, UNK, Request
from nmt.search.constrained import can_avoid
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import SPACE

BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
"""Regular expression for the names of byte tokens, such as `<0x0A>` for a line feed."""
LAST_CHARACTER = "\U0010ffff"
"""Last Unicode character, the upper bound of a binary search in the sorted subwords."""


class PrefixSpeller:
    """Finds all sequences of target subwords that spell a prefix of a translation.

    The last subword may extend beyond the prefix, so that a prefix can end inside a word.

    tokenizer: tokenizer whose target vocabulary is used
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = list(range(EOS + 1, tokenizer.target_size))
        self._ids = dict(zip(tokenizer.target_pieces(ids), ids, strict=True))
        self._pieces = sorted(self._ids)
        self._longest = max(map(len, self._pieces))
        self.continuing = tokenizer.continuing()
        """Ids of the subwords that continue a word."""

    def spellings(self, prefix: str) -> tuple[Mapping[int, int], ...]:
        """Returns the tokens that may begin at each character of the normalised prefix.

        Entry i of the result is a dictionary for character i. Its keys are the tokens that may
        begin at this character. Its values are the indices of the first character after the token;
        the index `len(result)` means that the token completes the prefix.

        The result is empty for a prefix without words. Entry 0 is empty if the vocabulary cannot
        spell the prefix.
        """
        text = self.tokenizer.target_spelling(prefix)
        if not text:
            return ()
        # The last word is complete. A no-break space may be part of the vocabulary.
        if prefix[-1].isspace() and text[-1] != prefix[-1]:
            text += SPACE
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


MOST_REQUIRED = 100
"""Maximum number of subwords in all required phrases of a translation, because the time of a search
grows faster than this number."""
MOST_FORBIDDEN = 100
"""Maximum number of subwords in a forbidden phrase, all of whose segmentations are computed."""
NOT_IN_VOCABULARY = "contains characters that are not in the vocabulary of the model"
PREFIX_IS_FORBIDDEN = (
    "constraints: no translation that begins with the prefix avoids all forbidden words; remove "
    "forbidden words that begin like the prefix"
)


@dataclass(frozen=True)
class Constraint:
    """Lexical constraints on one translation.

    prefix: text with which the translation must begin
    required: words or phrases that the translation must contain
    forbidden: words or phrases that the translation must not contain
    """

    prefix: str = ""
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str):
            raise TypeError(f"prefix={self.prefix!r}: must be text")
        for name in ("required", "forbidden"):
            words = getattr(self, name)
            if isinstance(words, str):
                raise TypeError(f"{name}={words!r}: must be a tuple of words, such as ({words!r},)")
            check_lines(words)
        check_lines([self.prefix])

    def added_to(self, request: Request, speller: PrefixSpeller, spare_tokens: int) -> Request:
        """Returns a copy of a search request with this constraint, encoded as target token ids.

        request: search request without constraints
        speller: finds all sequences of subwords that spell the prefix
        spare_tokens: number of tokens that a translation may have beyond prefix and required
            phrases

        Raises UserError if the vocabulary cannot spell a phrase or the constraint contradicts
        itself.
        """
        tokenizer = speller.tokenizer
        # Required phrases consist of whole words. A prefix may end inside a word.
        required = [tuple(ids) for ids in tokenizer.encode_target(list(self.required))]
        spellings = speller.spellings(self.prefix)
        unknown = [text for text, ids in zip(self.required, required, strict=True) if UNK in ids]
        if spellings and not spellings[0]:
            unknown.append(self.prefix)
        if unknown:
            raise UserError(f'constraints: "{unknown[0]}" {NOT_IN_VOCABULARY}')
        forbidden = _forbidden(self.forbidden, tokenizer)
        if spellings and not can_avoid(spellings, forbidden, []):
            raise UserError(PREFIX_IS_FORBIDDEN)
        _check_contradictions(required, forbidden, tokenizer)
        subwords = sum(map(len, required))
        if subwords > MOST_REQUIRED:
            raise UserError(
                f"constraints: the required phrases have {subwords:,} subwords, at most "
                f"{MOST_REQUIRED} per sentence are allowed"
            )
        # The length limit of a short source must not truncate the required phrases, or a prefix,
        # which has at most one subword for each character.
        needed = len(spellings) + subwords + spare_tokens
        return replace(
            request,
            max_length=max(request.max_length, needed),
            spellings=spellings,
            required=tuple(ids for ids in required if ids),
            forbidden=forbidden,
            continuing=speller.continuing,
        )


def _forbidden(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Returns the token sequences that spell forbidden phrases. Raises UserError if a phrase is too
    long."""
    encoded = zip(texts, tokenizer.encode_target(list(texts)), strict=True)
    # A text without subwords, such as a space, forbids nothing.
    lengths = {text: len(ids) for text, ids in encoded if ids}
    longest = max(lengths.values(), default=0)
    if longest > MOST_FORBIDDEN:
        raise UserError(
            f"constraints: a forbidden phrase has {longest:,} subwords, at most {MOST_FORBIDDEN} "
            "are allowed"
        )
    spellings = [tuple(ids) for text in lengths for ids in tokenizer.spellings(text)]
    # The mark of an unknown token, like a space, separates the rest of a spelling from other words.
    after_unknown = [
        (UNK, *ids[1:]) for ids in spellings if tokenizer.target_pieces(ids[:1]) == [SPACE]
    ]
    return tuple(spellings + [ids for ids in after_unknown if len(ids) > 1])


def _check_contradictions(
    required: Sequence[tuple[int, ...]], forbidden: Sequence[tuple[int, ...]], tokenizer: Tokenizer
) -> None:
    """Raises UserError if a required token sequence contains a forbidden one."""
    for sequence, banned in product(required, forbidden):
        if any(sequence[i : i + len(banned)] == banned for i in range(len(sequence))):
            required_text, banned_text = tokenizer.decode([list(sequence), list(banned)])
            raise UserError(
                f'constraints: "{required_text}" is required, but contains "{banned_text}", '
                "which is forbidden; remove one of them"
            )
