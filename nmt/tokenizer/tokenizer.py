"""Trained tokenizers: encoding, decoding, and alignment of subwords with words."""

import logging
import multiprocessing
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain, islice, pairwise
from typing import Any

import sentencepiece

from nmt.foundation.interfaces import EOS, UNK
from nmt.tokenizer.columns import Columns, Pictured
from nmt.tokenizer.sampling import Sampler
from nmt.tokenizer.sentencepiece_models import with_pieces_of
from nmt.tokenizer.words import (
    SPACE,
    SPLITS,
    UNKNOWN,
    Split,
    Units,
    covered,
    lengthens,
    with_characters,
    words,
)

log = logging.getLogger(__name__)
BLANKS = dict.fromkeys((*range(9, 14), *range(28, 32), 133), " ")
"""Table for `str.translate` that maps control characters to spaces."""


def prepared(lines: Sequence[str], lowercase: bool) -> list[str]:
    """Prepares lines for SentencePiece: replaces control characters by spaces, blank lines by empty
    lines and, if `lowercase` is set, letters by lower-case letters."""
    lines = [line if line.strip() else "" for line in lines]
    if not " ".join(lines).isprintable():  # a single test is much faster than one per line
        lines = [line.translate(BLANKS) for line in lines]
    return [line.lower() for line in lines] if lowercase else lines


def _encode_words(model: sentencepiece.SentencePieceProcessor, lines: list[str]) -> list[list[int]]:
    """Encodes lines word by word, so that each subword belongs to a single word."""
    split_lines = [line.split() for line in lines]
    # One call for all words: each call would start threads.
    all_words = list(chain.from_iterable(split_lines))
    encoded = iter(model.encode(all_words, num_threads=_threads(all_words)))
    return [list(chain.from_iterable(islice(encoded, len(line)))) for line in split_lines]


def _threads(rows: list[Any]) -> int:
    """Returns the number of threads for SentencePiece; -1 uses all cores.

    A single thread is faster for a few lines and in worker processes.
    """
    return 1 if len(rows) < 200 or multiprocessing.parent_process() is not None else -1


@dataclass(eq=False, repr=False)
class Tokenizer:
    """A trained tokenizer. Its ids contain no BOS, and EOS only between several source texts.

    source_model: serialised SentencePiece model of the source
    target_model: serialised SentencePiece model of the target; equal to `source_model` for a joint
        vocabulary
    lowercase: whether text is lowercased before encoding
    sampling: strength of random segmentation; 0 disables it
    columns: layout of the columns of a source line: texts, source factors, image

    Raises UserError if there are too many combinations of subwords and factor values.
    """

    source_model: bytes
    target_model: bytes
    _: KW_ONLY
    lowercase: bool
    sampling: float = 0.0
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        self.models = (self.source_model, self.target_model)
        self.joint = self.source_model == self.target_model
        """Whether source and target share one vocabulary."""
        self._source = sentencepiece.SentencePieceProcessor(model_proto=self.source_model)
        self._target = (
            self._source
            if self.joint
            else sentencepiece.SentencePieceProcessor(model_proto=self.target_model)
        )
        self.source_size: int = self._source.get_piece_size()
        """Number of subwords in the source vocabulary."""
        self.target_size: int = self._target.get_piece_size()
        """Number of subwords in the target vocabulary."""
        self.source_ids = self.columns.size(self.source_size)
        """Number of source ids, which are all combinations of subwords and factor values."""
        self._warned_values = set[str]()  # factor values about which a warning was logged
        ordinary = self.source_pieces(range(EOS + 1, self.source_size))
        # SentencePiece would merge adjacent unknown words into one <unk>. A word-level tokenizer
        # therefore encodes word by word.
        self.by_word = all(piece.startswith(SPACE) for piece in ordinary)

    def grown(self, other: "Tokenizer") -> "Tokenizer":
        """Returns a copy of the tokenizer, extended by the new subwords of another tokenizer."""
        source_model, target_model = map(with_pieces_of, self.models, other.models)
        return replace(self, source_model=source_model, target_model=target_model)

    def encode_source(self, lines: list[str], seed: int | None = None) -> list[Sequence[int]]:
        """Encodes source lines as token ids.

        lines: source lines; a single string raises TypeError
        seed: seed of the random segmentation, used if `sampling` is above 0; None disables
            random segmentation

        Raises UserError if a line does not have the columns that the model expects.
        """
        columns = self.columns
        if columns.plain:
            return [*self._encode(self._source, lines, seed)]
        rows = [columns.split(line) for line in lines]
        texts = [text for row in rows for text in row[: columns.sources]]
        ids = self._encode(self._source, texts, seed)
        if columns.picture:
            words = ids if columns.sources else [list[int]() for _ in lines]
            return [*map(Pictured, words, (row[-1].strip() for row in rows))]
        if columns.factors:
            self._warn_of_values(rows)
            return [
                columns.with_factors(
                    pieces,
                    places=self._places(self._source, row[0], pieces, str.split),
                    values=row[1:],
                    pieces=self.source_size,
                )
                for row, pieces in zip(rows, ids, strict=True)
            ]
        starts = range(0, len(ids), columns.sources)
        return [columns.joined(ids[start : start + columns.sources]) for start in starts]

    def _warn_of_values(self, rows: Sequence[Sequence[str]]) -> None:
        """Logs a warning for factor values that are not in the training data, once per value."""
        new = {value for row in rows for value in self.columns.unknown(row[1:])}
        new -= self._warned_values
        self._warned_values |= new
        if new:
            log.warning(
                "factors: %s factor values, such as %s, are not in the training data and have "
                "no effect",
                f"{len(new):,}",
                ", ".join(sorted(new)[:5]),
            )

    def encode_target(self, lines: list[str], seed: int | None = None) -> list[list[int]]:
        """Encodes target lines as token ids.

        lines: target lines; a single string raises TypeError
        seed: seed of the random segmentation, used if `sampling` is above 0; None disables
            random segmentation
        """
        return self._encode(self._target, lines, seed)

    def target_spelling(self, text: str) -> str:
        """Returns the characters of a target text as its subwords spell them, with ▁ for spaces."""
        [line] = prepared([text], self.lowercase)
        parts = line.split() if self.by_word else [line]
        return "".join(piece for part in parts for piece in self._target.encode(part, out_type=str))

    def _encode(
        self, model: sentencepiece.SentencePieceProcessor, lines: list[str], seed: int | None
    ) -> list[list[int]]:
        if isinstance(lines, str):
            raise TypeError(
                f"lines: expected a list of strings, got the string {lines[:30]!r}; pass [text]"
            )
        lines = prepared(lines, self.lowercase)
        if seed is None or not self.sampling:
            if self.by_word:
                return _encode_words(model, lines)
            return model.encode(lines, num_threads=_threads(lines))
        return self._samplers[model].encode(lines, seed)

    @cached_property
    def _samplers(self) -> dict[sentencepiece.SentencePieceProcessor, Sampler]:
        """Samplers of random segmentations, by SentencePiece model. They are created lazily, since
        they read the whole vocabulary."""
        return {model: Sampler(model, self.sampling) for model in {self._source, self._target}}

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Decodes target token ids into texts without spaces at the ends."""
        texts = self._target.decode(ids, num_threads=_threads(ids)) if ids else []
        # With byte fallback, SentencePiece leaves the space before an unknown word as ▁.
        return [text.replace(SPACE, " ").strip(" ") for text in texts]

    def source_words(self, line: str, ids: Sequence[int], split: Split = words) -> list[range]:
        """Returns the range of word indices that each token of a source line covers.

        A token covers a single word, except in scripts without spaces. The EOS between two source
        texts gets the index after the last word of the line.

        line: source line
        ids: token ids of the line
        split: function that splits a text into words
        """
        texts = self.columns.split(line)[: self.columns.sources]
        num_words = len(split(self.columns.words(line)))
        first = 0  # index of the text's first word
        ranges: list[range] = []
        for text, text_ids in zip(texts, self.columns.texts(ids), strict=False):
            pieces = [i % self.source_size for i in text_ids]
            places = self._places(self._source, text, pieces, split)
            ranges += [range(first + place.start, first + place.stop) for place in places]
            ranges.append(range(num_words, num_words + 1))
            first += len(split(text))
        return ranges[:-1]

    def source_units(
        self, line: str, ids: Sequence[int], units: Units = "word"
    ) -> tuple[list[str], list[range]]:
        """Returns the units of a source line, and the indices of the units that each token covers.

        line: source line
        ids: token ids of the line
        units: kind of unit: word, piece (subword), character, or space (text between spaces)
        """
        if units == "piece":
            return self.source_pieces(ids), [range(i, i + 1) for i in range(len(ids))]
        return SPLITS[units](self.columns.words(line)), self.source_words(line, ids, SPLITS[units])

    def target_units(
        self, line: str, ids: Sequence[int], units: Units = "word"
    ) -> tuple[list[str], list[range]]:
        """Returns the units of a target text, and the indices of the units that each token covers.

        line: target text
        ids: token ids of the text
        units: kind of unit: word, piece (subword), character, or space (text between spaces)
        """
        if units == "piece":
            return self.target_pieces(ids), [range(i, i + 1) for i in range(len(ids))]
        return SPLITS[units](line), self.target_words(line, ids, SPLITS[units])

    def target_words(
        self, line: str, ids: Sequence[int], split: Split = words, encoded: bool = False
    ) -> list[range]:
        """Returns the range of word indices that each token of a target text covers.

        If the text is a translation, an unknown token covers the words that replace it; none if it
        was dropped.

        line: target text
        ids: token ids of the text
        split: function that splits a text into words
        encoded: whether the text is known to be encoded as these ids, so that no unknown word has
            been replaced
        """
        if (
            UNK in ids
            and not encoded
            and [*ids] != self.encode_target([line])[0]
            and line != self.decode([list(ids)])[0]
        ):
            return self._places_with_replacements(line, ids, split)
        return self._places(self._target, line, ids, split)

    def _places_with_replacements(self, line: str, ids: Sequence[int], split: Split) -> list[range]:
        """Returns the range of word indices that each token covers in a target text whose unknown
        words have been replaced or dropped."""
        # Known tokens before, between and after the unknown tokens
        groups = self.columns.texts(ids, separator=UNK)
        texts = self.decode(groups)
        first_text, *middle, last_text = map(re.escape, texts)
        # Atomic groups prevent exponential backtracking if the texts do not match.
        replacements = "".join(f"(?>(.*?){text})" for text in middle)
        match = re.fullmatch(f"{first_text}{replacements}(.*){last_text}", line, re.DOTALL)
        if match is None:
            return self._places(self._target, line, ids, split)

        def index_of_word(position: int) -> int:
            """Returns the index of the word at a character, or of the next word."""
            before, after = split(line[:position]), split(line[position:])
            is_inside = len(before) + len(after) > len(split(line))
            return len(before) - is_inside

        places: list[range] = []
        for number, (text, group) in enumerate(zip(texts, groups, strict=True)):
            if number:
                begin, end = match.span(number)
                first = index_of_word(begin)
                places.append(range(first, first + len(split(line[begin:end]))))
            first = index_of_word(match.end(number) if number else 0)
            of_group = self._places(self._target, text, group, split)
            places += [range(first + place.start, first + place.stop) for place in of_group]
        return places

    def target_spans(self, line: str, ids: Sequence[int]) -> list[range]:
        """Returns the range of character positions that each token covers in a target text.

        A token's range excludes the space before it.
        """
        spans: list[range] = []
        end = 0
        for piece in self._spelled(self._target, line, ids):
            # A piece begins with a space if at all; normalisation may have inserted the space.
            begin = end + (piece.startswith(SPACE) and line[end : end + 1].isspace())
            end = begin + len(piece.removeprefix(SPACE))
            spans.append(range(begin, end))
        return spans

    def _places(
        self,
        model: sentencepiece.SentencePieceProcessor,
        text: str,
        ids: Sequence[int],
        split: Split,
    ) -> list[range]:
        """Returns the range of word indices that each token of a text covers."""
        pieces = self._spelled(model, text, ids)
        return covered(self._chunks(model, text, ids), pieces, text, split)

    def _spelled(
        self, model: sentencepiece.SentencePieceProcessor, text: str, ids: Sequence[int]
    ) -> list[str]:
        """Returns the strings of the tokens of a text.

        Unknown tokens are the characters of the text if the tokens are SentencePiece's own
        segmentation or a sampled one.
        """
        [line] = prepared([text], self.lowercase)
        if model.encode(line)[: len(ids)] == list(ids):
            return model.encode(line, out_type=str)[: len(ids)]
        pieces = [model.id_to_piece(i) for i in ids]
        return _with_unknown(pieces, model.normalize(line)) if UNK in ids else pieces

    def _chunks(
        self, model: sentencepiece.SentencePieceProcessor, text: str, ids: Sequence[int]
    ) -> list[int]:
        """Returns the index of the space-separated chunk that each token belongs to.

        Tokens never cross spaces, so normally each chunk is encoded separately and its tokens are
        counted. If the segmentation is sampled, or the text has other spaces than U+0020, the
        characters of the tokens are counted instead. If normalisation changes the characters,
        tokens that begin with a space are counted.
        """
        [line] = prepared([text], self.lowercase)
        parts = line.split()
        ids_of_parts = self._encode(model, parts, None) if parts else []
        if list(chain.from_iterable(ids_of_parts))[: len(ids)] == list(ids):
            return [n for n, part in enumerate(ids_of_parts) for _ in part][: len(ids)]
        pieces = with_characters(self._spelled(model, text, ids))
        spelled = ["".join(piece.replace(SPACE, " ").split()) for piece in pieces]
        if "".join(parts).startswith("".join(spelled)):
            owners = [n for n, part in enumerate(parts) for _ in part] or [0]  # [characters]
            starts = accumulate(map(len, spelled[:-1]), initial=0)
            # A subword of only spaces belongs to the next chunk.
            return [owners[min(start, len(owners) - 1)] for start in starts][: len(ids)]
        number = -1
        follows_space = True
        chunks = []  # [tokens]
        for piece in pieces:
            follows_space = follows_space or piece.startswith(SPACE)
            if follows_space and piece.strip(SPACE):
                number += 1
                follows_space = False
            # A subword of only spaces belongs to the next chunk.
            chunks.append(min(number + follows_space, max(len(parts) - 1, 0)))
        return chunks

    def continuing(self) -> frozenset[int]:
        """Returns the target ids of subwords that continue a word.

        These subwords begin with a letter instead of a space, and the letter belongs to a script
        that separates words by spaces.
        """
        pieces = self.target_pieces(range(self.target_size))
        return frozenset(i for i, piece in enumerate(pieces) if lengthens(piece[:1]))

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the strings of source subwords; ▁ marks a space."""
        return [self._source.id_to_piece(i % self.source_size) for i in ids]

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the strings of target subwords; ▁ marks a space."""
        return [self._target.id_to_piece(i) for i in ids]


def _with_unknown(pieces: list[str], line: str) -> list[str]:
    """Replaces each `<unk>` among the subwords of a line by the characters that it stands for.
    Returns the subwords unchanged if they do not spell the line."""
    spelled = []
    end = 0  # number of characters spelled so far
    for piece, following in pairwise([*pieces, ""]):
        begin = end
        end = begin + len(piece)
        if piece == UNKNOWN:
            end = line.find(following, begin + 1) if following else len(line)
        if end < 0 or (not line.startswith(piece, begin) and piece != UNKNOWN):
            return pieces
        spelled.append(line[begin:end])
    return spelled
