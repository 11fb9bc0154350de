"""Lexical constraints on translations: a prefix, required phrases and forbidden phrases."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from unicodedata import normalize

from nmt.data.text_encoding import check_lines
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, UNK, Request
from nmt.search.constrained import can_avoid
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import SPACE, is_byte, lengthens

LAST_CHARACTER = "\U0010ffff"
"""Last Unicode character, the upper bound of a binary search in the sorted subwords."""


class PrefixSpeller:
    """Finds all sequences of target subwords that spell a prefix of a translation.

    The last subword may extend beyond the prefix, so that a prefix can end inside a word.

    tokenizer: tokenizer whose target vocabulary is used
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.pieces = tokenizer.target_pieces(range(tokenizer.target_size))
        """Strings of all subwords by id."""
        self.ids = {piece: i for i, piece in enumerate(self.pieces) if i > EOS}
        """Ids of the ordinary subwords by their strings."""
        self._sorted_pieces = sorted(self.ids)
        self._longest = max(map(len, self._sorted_pieces))
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
                token = self.ids.get(text[start:end])
                # Skip positions from which the end of the prefix cannot be reached.
                if token is not None and graph[end]:
                    graph[start][token] = end
            for piece in self.beginning_with(text[start:]):
                graph[start][self.ids[piece]] = len(text)
        return tuple(graph)

    def beginning_with(self, text: str) -> list[str]:
        """Returns the subwords that begin with `text`, including a subword equal to `text`."""
        first = bisect_left(self._sorted_pieces, text)
        last = bisect_left(self._sorted_pieces, text + LAST_CHARACTER)
        pieces = self._sorted_pieces[first:last]
        return [piece for piece in pieces if piece == text or not is_byte(piece)]


class ForbiddenPhrase:
    """Function that excludes the tokens with which an output would contain a phrase.

    The phrase is found in every segmentation of the output into subwords, between spaces and
    punctuation marks, and anywhere in scripts without spaces between words. A token that ends with
    the phrase is excluded even if the next token might continue the word.

    text: phrase; a text without subwords, such as a space, excludes no tokens
    speller: finds all subwords that begin with a text
    """

    def __init__(self, text: str, speller: PrefixSpeller) -> None:
        self.text = text
        self._spelled = speller.tokenizer.target_spelling(text).strip(SPACE)
        self.memory = len(self._spelled) + 1
        """Number of last tokens that are sufficient to find the phrase: one for each character, and
        one before the phrase."""
        self._pieces = speller.pieces
        # Tokens that complete the phrase after its first n characters, indexed by n.
        self._completing = [
            [
                speller.ids[piece]
                for piece in speller.beginning_with(rest)
                if self._is_end(piece, rest)
            ]
            for rest in (self._spelled[n:] for n in range(len(self._spelled)))
        ]
        containing = {piece for piece in speller.ids if self._spelled in piece}
        self._within = {speller.ids[piece] for piece in containing if self._is_within(piece)}

    def __call__(self, written: Sequence[int]) -> set[int]:
        end = "".join(self._pieces[i] for i in written[-self.memory :])
        tokens = set(self._within)
        for n, completing in enumerate(self._completing):
            before = len(end) - n
            if end.endswith(self._spelled[:n]) and self._is_begin(end[:before]):
                tokens.update(completing)
        return tokens

    def _is_begin(self, before: str) -> bool:
        """Returns whether the phrase may begin directly after a text."""
        return not (lengthens(before[-1:]) and lengthens(self._spelled[0]))

    def _is_end(self, text: str, rest: str) -> bool:
        """Returns whether the phrase may end within a text that begins with the rest of the phrase:
        a letter after it would make the last word longer."""
        return not (lengthens(text[len(rest) : len(rest) + 1]) and lengthens(rest[-1]))

    def _is_within(self, piece: str) -> bool:
        """Returns whether a subword contains the phrase after its first character."""
        return bool(self._spelled) and any(
            self._is_begin(piece[:start]) and self._is_end(piece[start:], self._spelled)
            for start in range(1, len(piece))
            if piece.startswith(self._spelled, start)
        )


MOST_REQUIRED = 100
"""Maximum number of subwords in all required phrases of a translation, because the time of a search
grows faster than this number."""
MOST_FORBIDDEN = 100
"""Maximum number of subwords in a forbidden phrase, for each character of which a list of tokens is
computed."""
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
        forbidden = _forbidden(self.forbidden, speller)
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


def _forbidden(texts: Sequence[str], speller: PrefixSpeller) -> tuple[ForbiddenPhrase, ...]:
    """Returns functions that exclude the tokens of phrases. Raises UserError if a phrase is too
    long."""
    longest = max(map(len, speller.tokenizer.encode_target(list(texts))), default=0)
    if longest > MOST_FORBIDDEN:
        raise UserError(
            f"constraints: a forbidden phrase has {longest:,} subwords, at most {MOST_FORBIDDEN} "
            "are allowed"
        )
    # The model may write composed or decomposed letters.
    spellings = [(text, normalize("NFC", text), normalize("NFD", text)) for text in texts]
    different = dict.fromkeys(chain.from_iterable(spellings))
    return tuple(ForbiddenPhrase(text, speller) for text in different)


def _check_contradictions(
    required: Sequence[tuple[int, ...]], forbidden: Sequence[ForbiddenPhrase], tokenizer: Tokenizer
) -> None:
    """Raises UserError if a required token sequence contains a forbidden phrase."""
    for sequence, phrase in product(required, forbidden):
        if any(token in phrase(sequence[:end]) for end, token in enumerate(sequence)):
            [required_text] = tokenizer.decode([list(sequence)])
            raise UserError(
                f'constraints: "{required_text}" is required, but contains "{phrase.text}", '
                "which is forbidden; remove one of them"
            )
