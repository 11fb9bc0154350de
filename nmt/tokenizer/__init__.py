"""Text ↔ ids, by SentencePiece (Kudo & Richardson 2018): trained once from the training text, kept in the checkpoint.

Raw text in, raw text out: SentencePiece keeps the spaces, so nothing is tokenised before it or detokenised after it.

Imported by: analysis, configuration, corpus, inference, serving, storage, task, align, compare, translate, exporting.
Read: this file, words, columns, models, sampling.
"""

from __future__ import annotations

import hashlib
import io
import logging
import multiprocessing
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import sentencepiece

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS, PAD, UNK
from nmt.foundation.progress import waiting
from nmt.foundation.ranges import Range, Ratio, Size
from nmt.tokenizer.columns import Columns, Pictured
from nmt.tokenizer.models import kind, with_our_ids, with_pieces_of
from nmt.tokenizer.sampling import Sampler
from nmt.tokenizer.words import SPACE, SPLITS, Split, Units, covered, spaceless, words

log = logging.getLogger(__name__)
BLANKS = dict.fromkeys((*range(9, 14), *range(28, 32), 133), " ")
"""Control characters that are spaces."""
_BLANK = re.compile(f"[{''.join(map(chr, BLANKS))}]")
SHARED = "NMT_TOKENIZERS"
"""The environment variable that names a folder in which runs share SentencePiece models."""
LOOKED_AT = 10_000
"""Lines whose mean length stands for that of all."""
LONGEST = 10_000
"""Characters of a line that a tokenizer is trained on: SentencePiece needs time that grows with their square."""


class SentencePiece:
    """How to train a tokenizer: `model` unigram (Kudo 2018), bpe (Sennrich et al. 2016), char or word.

    joint: one vocabulary of `vocabulary_size` for both languages, otherwise one each. `sampling` > 0 draws a new
    segmentation of the training text every epoch: smoothing α of subword regularisation for unigram, the dropout rate
    of BPE-dropout (Provilkov et al. 2020) for bpe. `split_digits` makes every digit a piece of its own; with
    `byte_fallback` unknown characters become their UTF-8 bytes instead of <unk>. `normalization`: SentencePiece's rule by
    its name; identity keeps every character as it is written, nfkc replaces ½ by 1⁄2 and the like, in translations too.
    `sample`: characters of text that it is trained on; of a longer text, lines are drawn evenly.
    """

    def __init__(
        self,
        *,
        model: Literal["unigram", "bpe", "char", "word"] = "unigram",
        vocabulary_size: Annotated[int, Range(1, 10_000_000)] = 8000,
        joint: bool = True,
        lowercase: bool = False,
        normalization: Literal["identity", "nfkc", "nmt_nfkc", "nmt_nfkc_cf"] = "identity",
        byte_fallback: bool = False,
        split_digits: bool = False,
        character_coverage: Annotated[float, Range(0.98, 1.0)] = 1.0,
        sampling: Ratio = 0.0,
        sample: Size = 20_000_000,
    ) -> None:
        if sampling and model not in ("unigram", "bpe"):
            raise ValueError(f"tokenizer.sampling={sampling:g}: only unigram and bpe can sample; set it to 0")
        self.model, self.vocabulary_size, self.joint, self.lowercase = model, vocabulary_size, joint, lowercase
        self.options: dict[str, Any] = {
            "normalization_rule_name": normalization,
            "byte_fallback": byte_fallback,
            "split_digits": split_digits,
            "character_coverage": character_coverage,
        }
        self.sampling, self.sample, self.shared = sampling, sample, os.environ.get(SHARED)

    def train(self, source: Sequence[str], target: Sequence[str]) -> Tokenizer:
        """Raises UserError if the text has more distinct characters than the vocabulary has room for."""
        sides = 2 if self.joint and len(target) else 1
        source, target = (
            _drawn(lines, self.sample // sides, name)
            for lines, name in ((source, "the source"), (target, "the target"))
        )
        if self.joint:
            model = self._train(chain(source, target), "both languages" if target else "the text")
            return Tokenizer(model, model, lowercase=self.lowercase, sampling=self.sampling)
        models = [self._train(lines, name) for lines, name in ((source, "the source"), (target, "the target"))]
        return Tokenizer(*models, lowercase=self.lowercase, sampling=self.sampling)

    def _train(self, lines: Iterable[str], name: str) -> bytes:
        texts = _prepared([*lines], self.lowercase)
        cut = sum(len(line) > LONGEST for line in texts)
        texts = [line[:LONGEST] for line in texts]
        if cut:
            log.warning(
                "tokenizer: trained on the first %s characters only of %s longer lines", f"{LONGEST:,}", f"{cut:,}"
            )
        size = self.vocabulary_size
        try:
            model = self._fit(texts, size)
        except RuntimeError as error:
            most = re.search(r"<= (\d+)", str(error))
            if most is None:
                least = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
                why = f"it has {int(least[1]):,} characters and symbols" if least else str(error)
                raise UserError(
                    f"tokenizer: SentencePiece cannot train a vocabulary of {size:,} on {name}: {why}. Try another "
                    "sizes.vocabulary (or tokenizer.vocabulary_size), tokenizer.byte_fallback=true or tokenizer=char"
                ) from error
            model = self._fit(texts, int(most[1]))
        made = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
        if made < size and self.model in ("unigram", "bpe"):
            log.info(
                "vocabulary of %s: %s pieces, all that the text supports (asked for %s)", name, f"{made:,}", f"{size:,}"
            )
        return model

    def _fit(self, texts: list[str], size: int) -> bytes:
        """A SentencePiece model; one that another run has trained on the same text, and `shared`, is taken from there. Such
        a file begins with the hash of the rest."""
        if not self.shared:
            return self._fitted(texts, size)
        key = hashlib.sha256(repr((self.model, size, sorted(self.options.items()))).encode())
        for text in texts:
            key.update(text.encode("utf-8", "surrogatepass") + b"\n")
        file = Path(self.shared, f"{key.hexdigest()}.model")
        if file.is_file():
            log.info("tokenizer: that of another run on the same text")
            held = file.read_bytes()
            if hashlib.sha256(held[32:]).digest() != held[:32]:
                raise UserError(f"{file}: is damaged. Is the disk in order? Remove the file; it is made again")
            return held[32:]
        model = self._fitted(texts, size)
        file.parent.mkdir(parents=True, exist_ok=True)
        whole = file.with_suffix(f".{os.getpid()}")
        whole.write_bytes(hashlib.sha256(model).digest() + model)
        whole.replace(file)
        return model

    def _fitted(self, texts: list[str], size: int) -> bytes:
        writer = io.BytesIO()
        with waiting(f"training a vocabulary of {size:,} on {len(texts):,} lines"):
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=writer,
                model_type=self.model,
                vocab_size=size,
                hard_vocab_limit=False,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                max_sentence_length=1_000_000,
                num_threads=2,  # a constant: the result must not depend on the machine
                minloglevel=2,
                **self.options,
            )
        return writer.getvalue()


def _drawn(lines: Sequence[str], characters: int, name: str) -> Sequence[str]:
    """Lines of about as many characters: all, or some of them, evenly drawn in one pass."""
    every = max(1, len(lines) // LOOKED_AT)
    looked = [len(lines[i]) for i in range(0, len(lines), every)]
    share = characters / max(1.0, sum(looked) / max(1, len(looked)) * len(lines))
    if share >= 1:
        return lines
    log.info("tokenizer: trained on %.1f %% of the lines of %s, evenly drawn (tokenizer.sample)", 100 * share, name)
    chosen = np.flatnonzero(np.random.default_rng(0).random(len(lines)) < share)
    return [lines[i] for i in chosen.tolist()]


class SentencePieceFile:
    """A tokenizer that is trained already: SentencePiece models in files, one for both languages (`model`), or one for each
    (`target` too). Their special symbols may have any numbers; here they get those of nmt/foundation/interfaces.py."""

    def __init__(
        self, *, model: str, target: str | None = None, lowercase: bool = False, sampling: Ratio = 0.0
    ) -> None:
        self.files = {"model": model} if target is None else {"model": model, "target": target}
        self.lowercase, self.sampling = lowercase, sampling

    def train(self, source: Sequence[str], target: Sequence[str]) -> Tokenizer:
        """Reads the files; no text is needed. Raises UserError if they cannot be used."""
        models = [self._read(key, Path(name)) for key, name in self.files.items()]
        for name, model in zip(self.files.values(), models, strict=True):
            if self.sampling and kind(model) not in ("unigram", "bpe"):
                raise UserError(f"tokenizer.sampling={self.sampling:g}: {name} is no unigram or BPE model; set it to 0")
        return Tokenizer(models[0], models[-1], lowercase=self.lowercase, sampling=self.sampling)

    def _read(self, key: str, file: Path) -> bytes:
        try:
            model = with_our_ids(file.read_bytes())
            sentencepiece.SentencePieceProcessor(model_proto=model)
        except OSError as error:
            why = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
            raise UserError(f"tokenizer.{key}={file}: cannot be read ({why})") from error
        except Exception as error:  # whatever a protocol buffer or SentencePiece says of other files
            raise UserError(f"tokenizer.{key}={file}: not a SentencePiece model") from error
        return model


Untrained = SentencePiece | SentencePieceFile


def _prepared(lines: Sequence[str], lowercase: bool) -> list[str]:
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
        models = [with_pieces_of(own, theirs) for own, theirs in zip(self.models, other.models, strict=True)]
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
        texts = self._encode(self._source, [text for row in parts for text in row[: columns.sources]], seed)
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
                    "factors: training did not have %s values, which count as none: %s …", f"{len(new):,}", some
                )
            for row, ids in zip(parts, texts, strict=True):
                places = self._places(self._source, row[0], ids, str.split)
                found.append(columns.with_factors(ids, places, row[1:], self.source_size))
            return found
        return [columns.joined(texts[i : i + columns.sources]) for i in range(0, len(texts), columns.sources)]

    def encode_target(self, lines: list[str], seed: int | None = None) -> list[list[int]]:
        """As `encode_source`, for the target language."""
        return self._encode(self._target, lines, seed)

    def _encode(
        self, model: sentencepiece.SentencePieceProcessor, lines: list[str], seed: int | None
    ) -> list[list[int]]:
        if isinstance(lines, str):
            raise TypeError(f"a list of lines is needed, not one string ({lines[:30]!r}): write [text]")
        lines = _prepared(lines, self.lowercase)
        if seed is None or not self.sampling:
            if self.by_word:
                return [[i for ids in model.encode(line.split()) for i in ids] for line in lines]
            return model.encode(lines, num_threads=_threads(lines))
        side = 0 if model is self._source else 1
        if side not in self._samplers:
            self._samplers[side] = Sampler(model, self.sampling, merges=kind(self.models[side]) == "bpe")
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

    def source_units(self, line: str, ids: list[int], units: Units = "word") -> tuple[list[str], list[range]]:
        """The words of a source line, or other units, as people see them; and for each piece the numbers of those that it is
        a part of."""
        if units == "piece":
            return self.source_pieces(ids), [range(i, i + 1) for i in range(len(ids))]
        return SPLITS[units](self.columns.words(line)), self.source_words(line, ids, SPLITS[units])

    def target_units(self, line: str, ids: list[int], units: Units = "word") -> tuple[list[str], list[range]]:
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
            found += [[i] for piece, i in known.items() if text.strip() in piece and [i] not in found]
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
