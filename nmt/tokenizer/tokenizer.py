"""A trained tokenizer: ids of texts and texts of ids, and which pieces stand for which words."""

from __future__ import annotations

import logging
import multiprocessing
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import sentencepiece

from nmt.foundation.interfaces import EOS
from nmt.tokenizer.columns import Columns, Pictured
from nmt.tokenizer.sampling import Sampler
from nmt.tokenizer.sentencepiece_models import kind, with_pieces_of
from nmt.tokenizer.words import SPACE, SPLITS, Split, Units, covered, spaceless, words

log = logging.getLogger(__name__)
BLANKS = dict.fromkeys((*range(9, 14), *range(28, 32), 133), " ")
"""Control characters that are spaces."""
_BLANK = re.compile(f"[{''.join(map(chr, BLANKS))}]")


def prepared(lines: Sequence[str], lowercase: bool) -> list[str]:
    """What SentencePiece gets: tabs and the like are spaces, and a line of nothing but spaces of any kind is empty."""
    found = [line if line.strip() else "" for line in lines]
    if not " ".join(found).isprintable():  # a look at all is much cheaper than one at each
        found = [line.translate(BLANKS) if _BLANK.search(line) else line for line in found]
    return [line.lower() for line in found] if lowercase else found


def _threads(rows: list[Any]) -> int:
    """SentencePiece's default is all cores; for a few lines, starting the threads costs more than the work, and beside other
    processes that do the same, each has a core."""
    return 1 if len(rows) < 200 or multiprocessing.parent_process() is not None else -1


class Tokenizer:
    """A trained tokenizer: two SentencePiece models (the same one twice if joint), and what a line of the source holds.
    Ids never include BOS, and EOS only between several sources."""

    def __init__(
        self,
        source_model: bytes,
        target_model: bytes,
        *,
        lowercase: bool,
        sampling: float = 0.0,
        columns: Columns | None = None,
    ) -> None:
        self.models = (source_model, target_model)
        self.lowercase, self.sampling, self.columns = lowercase, sampling, columns or Columns()
        self._source = sentencepiece.SentencePieceProcessor(model_proto=source_model)
        self._target = self._source
        if not self.joint:
            self._target = sentencepiece.SentencePieceProcessor(model_proto=target_model)
        # If all pieces are words, SentencePiece makes one <unk> of several unknown words in a row.
        ordinary = (self._source.id_to_piece(i) for i in range(EOS + 1, self.source_size))
        self._samplers: dict[int, Sampler] = {}
        self._told = set[str]()  # values of factors that a warning has named
        self.by_word = all(piece.startswith(SPACE) for piece in ordinary)

    def sampled(self, sampling: float) -> Tokenizer:
        """The same with another `sampling`."""
        return self._changed(sampling=sampling)

    def reading(self, columns: Columns) -> Tokenizer:
        """The same for source lines of several columns."""
        return self._changed(columns=columns)

    def grown(self, other: Tokenizer) -> Tokenizer:
        """The same with the pieces of another tokenizer at its end, those that it does not have."""
        models = [
            with_pieces_of(own, theirs)
            for own, theirs in zip(self.models, other.models, strict=True)
        ]
        return self._changed(models=models)

    def _changed(self, models: Sequence[bytes] | None = None, **other: Any) -> Tokenizer:
        held = {"lowercase": self.lowercase, "sampling": self.sampling, "columns": self.columns}
        return Tokenizer(*(models or self.models), **{**held, **other})

    @property
    def joint(self) -> bool:
        return self.models[0] == self.models[1]

    @property
    def source_size(self) -> int:
        """Pieces of the source."""
        return self._source.get_piece_size()

    @property
    def source_ids(self) -> int:
        """Ids of the source: pieces, each with all its factors."""
        return self.columns.size(self.source_size)

    @property
    def target_size(self) -> int:
        return self._target.get_piece_size()

    def encode_source(self, lines: list[str], seed: int | None = None) -> list[list[int]]:
        """Ids of each line (TypeError for a string, whose letters would be lines); with a `seed` and `sampling` > 0, a
        random segmentation that depends on the seed alone. Raises UserError if a line has not the columns that the model
        reads."""
        columns = self.columns
        if columns.plain:
            return self._encode(self._source, lines, seed)
        parts = [columns.split(line) for line in lines]
        texts = self._encode(
            self._source, [text for row in parts for text in row[: columns.sources]], seed
        )
        if columns.picture:
            found = texts if columns.sources else [list[int]() for _ in lines]
            return [Pictured(ids, row[-1].strip()) for ids, row in zip(found, parts, strict=True)]
        if columns.factors:
            found = []
            new = {value for row in parts for value in columns.unknown(row[1:])} - self._told
            if new:
                self._told |= new
                some = ", ".join(sorted(new)[:5])
                log.warning(
                    "factors: training did not have %s values, which count as none: %s …",
                    f"{len(new):,}",
                    some,
                )
            for row, ids in zip(parts, texts, strict=True):
                places = self._places(self._source, row[0], ids, str.split)
                found.append(columns.with_factors(ids, places, row[1:], self.source_size))
            return found
        return [
            columns.joined(texts[i : i + columns.sources])
            for i in range(0, len(texts), columns.sources)
        ]

    def encode_target(self, lines: list[str], seed: int | None = None) -> list[list[int]]:
        """As `encode_source`, for the target language."""
        return self._encode(self._target, lines, seed)

    def target_spelling(self, text: str) -> str:
        """A normalised target text as its pieces spell it; a space is ▁."""
        [line] = prepared([text], self.lowercase)
        parts = line.split() if self.by_word else [line]
        return "".join(piece for part in parts for piece in self._target.encode(part, out_type=str))

    def _encode(
        self, model: sentencepiece.SentencePieceProcessor, lines: list[str], seed: int | None
    ) -> list[list[int]]:
        if isinstance(lines, str):
            raise TypeError(
                f"a list of lines is needed, not one string ({lines[:30]!r}): write [text]"
            )
        lines = prepared(lines, self.lowercase)
        if seed is None or not self.sampling:
            if self.by_word:
                return [[i for ids in model.encode(line.split()) for i in ids] for line in lines]
            return model.encode(lines, num_threads=_threads(lines))
        side = 0 if model is self._source else 1
        if side not in self._samplers:
            self._samplers[side] = Sampler(
                model, self.sampling, merges=kind(self.models[side]) == "bpe"
            )
        return self._samplers[side].encode(lines, seed)

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Target ids back to text."""
        texts = self._target.decode(ids, num_threads=_threads(ids)) if ids else []
        # An unknown word in bytes has its space in bytes too.
        return [text.replace(SPACE, " ").strip(" ") if SPACE in text else text for text in texts]

    def source_words(self, line: str, ids: list[int], split: Split = words) -> list[range]:
        """For each piece of a source line, the numbers of the words that it is a part of; one word, unless the script writes
        no spaces. `split`: what a word is, see words.py. The EOS between two sources belongs to the number after the last
        word, which is that of the final EOS."""
        texts = self.columns.split(line)[: self.columns.sources]
        total, begun, found = len(split(self.columns.words(line))), 0, list[range]()
        for k, (text, own) in enumerate(zip(texts, self.columns.texts(ids), strict=False)):
            found += [range(total, total + 1)] if k else []
            places = self._places(self._source, text, [i % self.source_size for i in own], split)
            found += [range(begun + its.start, begun + its.stop) for its in places]
            begun += len(split(text))
        return found

    def source_units(
        self, line: str, ids: list[int], units: Units = "word"
    ) -> tuple[list[str], list[range]]:
        """The words of a source line, or other units, as people see them; and for each piece the numbers of those that it is
        a part of."""
        if units == "piece":
            return self.source_pieces(ids), [range(i, i + 1) for i in range(len(ids))]
        return SPLITS[units](self.columns.words(line)), self.source_words(line, ids, SPLITS[units])

    def target_units(
        self, line: str, ids: list[int], units: Units = "word"
    ) -> tuple[list[str], list[range]]:
        """As `source_units`, for a given or written translation."""
        if units == "piece":
            return self.target_pieces(ids), [range(i, i + 1) for i in range(len(ids))]
        return SPLITS[units](line), self.target_words(line, ids, SPLITS[units])

    def target_words(self, line: str, ids: list[int], split: Split = words) -> list[range]:
        """As `source_words`, for a given or written translation."""
        return self._places(self._target, line, ids, split)

    def target_spans(self, line: str, ids: list[int]) -> list[range]:
        """Which characters of a target text each of its pieces stands for, spaces left out."""
        found, at = list[range](), 0
        for piece in self.target_pieces(ids):
            begin = None
            for character in piece:
                if character == SPACE:
                    at += line[at : at + 1].isspace()
                else:
                    begin, at = at if begin is None else begin, at + 1
            found.append(range(at if begin is None else begin, at))
        return found

    def _places(
        self, model: sentencepiece.SentencePieceProcessor, text: str, ids: list[int], split: Split
    ) -> list[range]:
        pieces = [model.id_to_piece(i) for i in ids]
        chunks = _chunks_of(text, ids, pieces, lambda parts: self._encode(model, parts, None))
        return covered(chunks, pieces, text, split)

    def continuing(self) -> frozenset[int]:
        """Target ids of continuation pieces, which lengthen the word before them: pieces that begin with a letter, not
        a space, in scripts that write spaces."""
        pieces = (self._target.id_to_piece(i) for i in range(self.target_size))
        return frozenset(i for i, piece in enumerate(pieces) if _lengthens(piece))

    def spellings(self, text: str, most: int = 64) -> list[list[int]]:
        """Ways to write a text, as whole words, in target pieces, the usual one first: all ways for the shortest words,
        the `most` with the fewest pieces for others. For punctuation, also every piece that contains it."""
        [usual] = self.encode_target([text])
        known = {self._target.id_to_piece(i): i for i in range(EOS + 1, self.target_size)}
        spelled = "".join(self.target_pieces(usual))
        paths: list[list[list[int]]] = [[[]], *([] for _ in spelled)]
        for end in range(1, len(spelled) + 1):
            for begin in range(end):
                piece = known.get(spelled[begin:end])
                if piece is not None:
                    paths[end] += [[*path, piece] for path in paths[begin]]
            paths[end] = sorted(paths[end], key=len)[:most]
        found = [usual, *(path for path in paths[-1] if path != usual)]
        if not any(character.isalnum() for character in text):
            found += [
                [i] for piece, i in known.items() if text.strip() in piece and [i] not in found
            ]
        return found

    def source_pieces(self, ids: list[int]) -> list[str]:
        """The pieces as written, for pictures (▁ marks a space)."""
        return [self._source.id_to_piece(i % self.source_size) for i in ids]

    def target_pieces(self, ids: list[int]) -> list[str]:
        return [self._target.id_to_piece(i) for i in ids]


def _chunks_of(
    line: str, ids: list[int], pieces: list[str], encode: Callable[[list[str]], list[list[int]]]
) -> list[int]:
    """Which part of the line, between spaces, each piece belongs to. Pieces never cross spaces, so a line's pieces are those
    of its parts. This fails if normalisation adds or removes spaces, or if the line was segmented in an unusual way.
    Then the pieces that begin with a space are counted."""
    parts = line.split()
    each = encode(parts) if parts else []
    if [i for part in each for i in part][: len(ids)] == ids:
        return [n for n, part in enumerate(each) for _ in part][: len(ids)]
    return _counted(pieces, len(parts))


def _counted(pieces: list[str], parts: int) -> list[int]:
    """Counts the pieces that begin with a space; the highest number is that of the last of `parts` parts."""
    number, found, begun = -1, [], True
    for piece in pieces:
        begun = begun or piece.startswith(SPACE)
        if begun and piece.strip(SPACE):
            number, begun = number + 1, False
        found.append(min(max(number + begun, 0), max(parts - 1, 0)))
    return found


def _lengthens(piece: str) -> bool:
    first = piece[:1]
    if not first or not (first.isalnum() or unicodedata.category(first).startswith("M")):
        return False
    return not spaceless(first)
