"""Text ↔ ids, by SentencePiece (Kudo & Richardson 2018): trained once from the training text, kept in the checkpoint.

Raw text in, raw text out: SentencePiece keeps the spaces, so nothing is tokenised before it or detokenised after it.

Read: this file, tokenizer, words, columns, sentencepiece_models, sampling.
"""

import hashlib
import io
import logging
import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import sentencepiece

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS, PAD, UNK
from nmt.foundation.part_limits import RunView
from nmt.foundation.progress import waiting
from nmt.foundation.ranges import Range, Ratio, Size
from nmt.tokenizer.sentencepiece_models import kind, with_our_ids
from nmt.tokenizer.tokenizer import Tokenizer, prepared

__all__ = ["SentencePiece", "SentencePieceFile", "Tokenizer", "Untrained"]
log = logging.getLogger(__name__)
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
            raise ValueError(
                f"tokenizer.sampling={sampling:g}: only unigram and bpe can sample; set it to 0"
            )
        self.model, self.vocabulary_size, self.joint, self.lowercase = (
            model,
            vocabulary_size,
            joint,
            lowercase,
        )
        self.options: dict[str, Any] = {
            "normalization_rule_name": normalization,
            "byte_fallback": byte_fallback,
            "split_digits": split_digits,
            "character_coverage": character_coverage,
        }
        self.sampling, self.sample, self.shared = sampling, sample, os.environ.get(SHARED)

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """The treatment of digits, where every character is a piece."""
        if run.value("tokenizer.split_digits") and run.value("tokenizer.model") == "char":
            return {"tokenizer.split_digits": "every character is a piece of its own already"}
        return {}

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
        models = [
            self._train(lines, name)
            for lines, name in ((source, "the source"), (target, "the target"))
        ]
        return Tokenizer(*models, lowercase=self.lowercase, sampling=self.sampling)

    def _train(self, lines: Iterable[str], name: str) -> bytes:
        texts = prepared([*lines], self.lowercase)
        cut = sum(len(line) > LONGEST for line in texts)
        texts = [line[:LONGEST] for line in texts]
        if cut:
            log.warning(
                "tokenizer: trained on the first %s characters only of %s longer lines",
                f"{LONGEST:,}",
                f"{cut:,}",
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
                "vocabulary of %s: %s pieces, all that the text supports (asked for %s)",
                name,
                f"{made:,}",
                f"{size:,}",
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
                raise UserError(
                    f"{file}: is damaged. Is the disk in order? Remove the file; it is made again"
                )
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
    log.info(
        "tokenizer: trained on %.1f %% of the lines of %s, evenly drawn (tokenizer.sample)",
        100 * share,
        name,
    )
    chosen = np.flatnonzero(np.random.default_rng(0).random(len(lines)) < share)
    return [lines[i] for i in chosen.tolist()]


class SentencePieceFile:
    """A tokenizer that is trained already: SentencePiece models in files, one for both languages (`model`), or one for each
    (`target` too). Their special symbols may have any numbers; here they get those of nmt/foundation/interfaces.py."""

    def __init__(
        self,
        *,
        model: str,
        target: str | None = None,
        lowercase: bool = False,
        sampling: Ratio = 0.0,
    ) -> None:
        self.files = {"model": model} if target is None else {"model": model, "target": target}
        self.lowercase, self.sampling = lowercase, sampling

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """The size of the vocabulary, which the files have."""
        return {"sizes.vocabulary": "the vocabulary is that of tokenizer.model"}

    def train(self, source: Sequence[str], target: Sequence[str]) -> Tokenizer:
        """Reads the files; no text is needed. Raises UserError if they cannot be used."""
        models = [self._read(key, Path(name)) for key, name in self.files.items()]
        for name, model in zip(self.files.values(), models, strict=True):
            if self.sampling and kind(model) not in ("unigram", "bpe"):
                raise UserError(
                    f"tokenizer.sampling={self.sampling:g}: {name} is no unigram or BPE model; set it to 0"
                )
        return Tokenizer(models[0], models[-1], lowercase=self.lowercase, sampling=self.sampling)

    def _read(self, key: str, file: Path) -> bytes:
        try:
            model = with_our_ids(file.read_bytes())
            sentencepiece.SentencePieceProcessor(model_proto=model)
        except OSError as error:
            why = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
            raise UserError(f"tokenizer.{key}={file}: cannot be read ({why})") from error
        except (
            Exception
        ) as error:  # whatever a protocol buffer or SentencePiece says of other files
            raise UserError(f"tokenizer.{key}={file}: not a SentencePiece model") from error
        return model


Untrained = SentencePiece | SentencePieceFile
