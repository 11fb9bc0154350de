"""Trained tokenizers: ids of texts, texts of ids, and the words of pieces."""

from __future__ import annotations

import logging
import multiprocessing
import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Any

import sentencepiece

from nmt.foundation.interfaces import EOS
from nmt.tokenizer.columns import Columns, Pictured
from nmt.tokenizer.sampling import Sampler
from nmt.tokenizer.sentencepiece_models import kind, with_pieces_of
from nmt.tokenizer.words import SPACE, SPLITS, Split, Units, covered, spaceless, words

log = logging.getLogger(__name__)
BLANKS = dict.fromkeys((*range(9, 14), *range(28, 32), 133), " ")
"""Control characters that count as spaces."""
_BLANK = re.compile(f"[{''.join(map(chr, BLANKS))}]")


def prepared(lines: Sequence[str], lowercase: bool) -> list[str]:
    """Lines as SentencePiece receives them: tabs and the like become spaces, lines of nothing but
    spaces of any kind become empty."""
    lines = [line if line.strip() else "" for line in lines]
    if not " ".join(lines).isprintable():  # one test of all lines is much cheaper than one of each
        lines = [line.translate(BLANKS) if _BLANK.search(line) else line for line in lines]
    return [line.lower() for line in lines] if lowercase else lines


def _threads(rows: list[Any]) -> int:
    """Number of threads of SentencePiece; -1: all cores. One thread is best for a few lines, and in a
    child process, beside others that do the same."""
    return 1 if len(rows) < 200 or multiprocessing.parent_process() is not None else -1


class Tokenizer:
    """A trained tokenizer. Ids never include BOS, and EOS only between several sources.

    source_model: SentencePiece model of the source.
    target_model: SentencePiece model of the target; the same one if the vocabulary is joint.
    lowercase: whether texts become lowercase.
    sampling: strength of random segmentations, 0: none.
    columns: columns of source lines; default: one text.
    """

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
        self.lowercase = lowercase
        self.sampling = sampling
        self.columns = columns or Columns()
        self._source = sentencepiece.SentencePieceProcessor(model_proto=source_model)
        self._target = self._source
        if not self.joint:
            self._target = sentencepiece.SentencePieceProcessor(model_proto=target_model)
        self._samplers: dict[int, Sampler] = {}
        self._warned_values = set[str]()  # unknown values of factors
        ordinary = self.source_pieces(range(EOS + 1, self.source_size))
        # If all pieces are words, SentencePiece makes one <unk> of several unknown words in a row.
        self.by_word = all(piece.startswith(SPACE) for piece in ordinary)

    def sampled(self, sampling: float) -> Tokenizer:
        """The same with another `sampling`."""
        return self._changed(sampling=sampling)

    def reading(self, columns: Columns) -> Tokenizer:
        """The same for source lines of several columns."""
        return self._changed(columns=columns)

    def grown(self, other: Tokenizer) -> Tokenizer:
        """The same with the new pieces of another tokenizer at its end."""
        models = map(with_pieces_of, self.models, other.models)
        return self._changed(models=[*models])

    def _changed(self, models: Sequence[bytes] | None = None, **changes: Any) -> Tokenizer:
        settings = {"lowercase": self.lowercase, "sampling": self.sampling, "columns": self.columns}
        return Tokenizer(*(models or self.models), **{**settings, **changes})

    @property
    def joint(self) -> bool:
        return self.models[0] == self.models[1]

    @property
    def source_size(self) -> int:
        """Number of source pieces."""
        return self._source.get_piece_size()

    @property
    def source_ids(self) -> int:
        """Number of source ids: pieces with all combinations of factors."""
        return self.columns.size(self.source_size)

    @property
    def target_size(self) -> int:
        return self._target.get_piece_size()

    def encode_source(self, lines: list[str], seed: int | None = None) -> list[Sequence[int]]:
        """Ids of source lines.

        lines: source lines; a single string is a TypeError.
        seed: with `sampling` > 0, seed of a random segmentation, which depends on nothing else.

        Raises UserError if a line does not have the columns that the model reads.
        """
        columns = self.columns
        if columns.plain:
            return [*self._encode(self._source, lines, seed)]
        rows = [columns.split(line) for line in lines]
        texts = [text for row in rows for text in row[: columns.sources]]
        ids = self._encode(self._source, texts, seed)
        if columns.picture:
            words = ids if columns.sources else [list[int]() for _ in lines]
            return [
                Pictured(of_line, row[-1].strip()) for of_line, row in zip(words, rows, strict=True)
            ]
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
        number = columns.sources
        return [columns.joined(ids[i : i + number]) for i in range(0, len(ids), number)]

    def _warn_of_values(self, rows: Sequence[Sequence[str]]) -> None:
        """Logs values of factors that training did not have, each once."""
        unknown = {value for row in rows for value in self.columns.unknown(row[1:])}
        new = unknown - self._warned_values
        if new:
            self._warned_values |= new
            log.warning(
                "factors: training did not have %s values, which count as none: %s …",
                f"{len(new):,}",
                ", ".join(sorted(new)[:5]),
            )

    def encode_target(self, lines: list[str], seed: int | None = None) -> list[list[int]]:
        """Ids of target lines. See `encode_source`."""
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

    def source_words(self, line: str, ids: Sequence[int], split: Split = words) -> list[range]:
        """Numbers of the words that each piece of a source line is a part of; one word, unless the
        script writes no spaces. The EOS between two sources has the number after the last word.

        line: source line.
        ids: its ids.
        split: cuts a text into words, see words.py.
        """
        texts = self.columns.split(line)[: self.columns.sources]
        total = len(split(self.columns.words(line)))
        first = 0
        ranges: list[range] = []
        for k, (text, text_ids) in enumerate(zip(texts, self.columns.texts(ids), strict=False)):
            if k:
                ranges.append(range(total, total + 1))
            pieces = [i % self.source_size for i in text_ids]
            places = self._places(self._source, text, pieces, split)
            ranges += [range(first + place.start, first + place.stop) for place in places]
            first += len(split(text))
        return ranges

    def source_units(
        self, line: str, ids: Sequence[int], units: Units = "word"
    ) -> tuple[list[str], list[range]]:
        """The words of a source line, or other units, and for each piece the numbers of its units."""
        if units == "piece":
            return self.source_pieces(ids), [range(i, i + 1) for i in range(len(ids))]
        return SPLITS[units](self.columns.words(line)), self.source_words(line, ids, SPLITS[units])

    def target_units(
        self, line: str, ids: Sequence[int], units: Units = "word"
    ) -> tuple[list[str], list[range]]:
        """See `source_units`, for a target text."""
        if units == "piece":
            return self.target_pieces(ids), [range(i, i + 1) for i in range(len(ids))]
        return SPLITS[units](line), self.target_words(line, ids, SPLITS[units])

    def target_words(self, line: str, ids: Sequence[int], split: Split = words) -> list[range]:
        """See `source_words`, for a target text."""
        return self._places(self._target, line, ids, split)

    def target_spans(self, line: str, ids: Sequence[int]) -> list[range]:
        """Characters of a target text that each of its pieces stands for, without spaces."""
        spans: list[range] = []
        at = 0
        for piece in self.target_pieces(ids):
            begin = None
            for character in piece:
                if character == SPACE:
                    at += line[at : at + 1].isspace()
                    continue
                if begin is None:
                    begin = at
                at += 1
            spans.append(range(at if begin is None else begin, at))
        return spans

    def _places(
        self,
        model: sentencepiece.SentencePieceProcessor,
        text: str,
        ids: Sequence[int],
        split: Split,
    ) -> list[range]:
        """Numbers of the words that each piece is a part of."""
        pieces = [model.id_to_piece(i) for i in ids]
        return covered(self._chunks(model, text, ids, pieces), pieces, text, split)

    def _chunks(
        self,
        model: sentencepiece.SentencePieceProcessor,
        text: str,
        ids: Sequence[int],
        pieces: Sequence[str],
    ) -> list[int]:
        """Number of the part of the text, between spaces, that each piece belongs to.

        Pieces never cross spaces, so a text's pieces are those of its parts, unless normalisation
        adds or removes spaces, or the segmentation is unusual. Then the pieces that begin with a
        space are counted.
        """
        parts = text.split()
        ids_of_parts = self._encode(model, parts, None) if parts else []
        if list(chain.from_iterable(ids_of_parts))[: len(ids)] == list(ids):
            return [n for n, part in enumerate(ids_of_parts) for _ in part][: len(ids)]
        last = max(len(parts) - 1, 0)
        number = -1
        follows_space = True
        chunks = []
        for piece in pieces:
            follows_space = follows_space or piece.startswith(SPACE)
            if follows_space and piece.strip(SPACE):
                number += 1
                follows_space = False
            chunks.append(min(max(number + follows_space, 0), last))
        return chunks

    def continuing(self) -> frozenset[int]:
        """Target ids of pieces that lengthen the word before them: they begin with a letter, not with
        a space, in scripts that write spaces."""
        pieces = self.target_pieces(range(self.target_size))
        return frozenset(i for i, piece in enumerate(pieces) if _lengthens(piece))

    def spellings(self, text: str, most: int = 64) -> list[list[int]]:
        """Ways to write a text in target pieces, as whole words, the usual one first. For punctuation,
        also every piece that contains it.

        text: the text.
        most: number of ways, those with the fewest pieces.
        """
        [usual] = self.encode_target([text])
        known = {self._target.id_to_piece(i): i for i in range(EOS + 1, self.target_size)}
        spelled = "".join(self.target_pieces(usual))
        paths: list[list[list[int]]] = [[[]]]  # ways to write the first n characters, by n
        for end in range(1, len(spelled) + 1):
            ways = []
            for begin in range(end):
                piece = known.get(spelled[begin:end])
                if piece is not None:
                    ways += [[*path, piece] for path in paths[begin]]
            paths.append(sorted(ways, key=len)[:most])
        spellings = [usual, *(path for path in paths[-1] if path != usual)]
        if not any(character.isalnum() for character in text):
            containing = [[i] for piece, i in known.items() if text.strip() in piece]
            spellings += [spelling for spelling in containing if spelling not in spellings]
        return spellings

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Source pieces as written; ▁ marks a space."""
        return [self._source.id_to_piece(i % self.source_size) for i in ids]

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Target pieces as written; ▁ marks a space."""
        return [self._target.id_to_piece(i) for i in ids]


def _lengthens(piece: str) -> bool:
    first = piece[:1]
    is_letter = first.isalnum() or unicodedata.category(first or " ").startswith("M")
    return is_letter and not spaceless(first)
