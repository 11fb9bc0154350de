"""Text ↔ ids, by SentencePiece (Kudo & Richardson 2018).

A tokenizer is trained once from the training text, and stored in the checkpoint. SentencePiece
keeps the spaces, so that text is not tokenised before it, nor detokenised after it.

Read: this file, tokenizer, words, columns, sentencepiece_models, sampling.
"""

import hashlib
import io
import logging
import re
from collections.abc import Callable, Sequence
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
Shared = Callable[[str, Callable[[], bytes]], bytes]
"""Returns the model with a key; the second argument trains it if no run has trained it before."""
MEASURED = 10_000
"""Lines from which the mean length of all lines is estimated."""
LONGEST = 10_000
"""Characters of a line that are trained on: the time of SentencePiece grows with their square."""


class SentencePiece:
    """Settings of a tokenizer to train.

    model: unigram (Kudo 2018), bpe (Sennrich et al. 2016), char or word.
    vocabulary_size: number of pieces.
    joint: whether both languages have one vocabulary, or one each.
    lowercase: whether texts become lowercase.
    normalization: rule of SentencePiece. identity keeps every character as it is written; nfkc
        replaces ½ by 1⁄2 and the like, in translations too.
    byte_fallback: whether unknown characters become their UTF-8 bytes instead of <unk>.
    split_digits: whether every digit is a piece of its own.
    character_coverage: share of the characters of the text that pieces are made of.
    sampling: strength of new random segmentations in every epoch; 0: none. For unigram, the
        smoothing α of subword regularisation; for bpe, the rate of BPE-dropout (Provilkov et al.
        2020).
    sample: characters of text that are trained on; of a longer text, lines are drawn evenly.

    Raises ValueError if the model cannot sample.
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
        self.model = model
        self.vocabulary_size = vocabulary_size
        self.joint = joint
        self.lowercase = lowercase
        # Arguments of SentencePiece's trainer; part of the key of shared models.
        self.options: dict[str, Any] = {
            "normalization_rule_name": normalization,
            "byte_fallback": byte_fallback,
            "split_digits": split_digits,
            "character_coverage": character_coverage,
        }
        self.sampling = sampling
        self.sample = sample

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """The treatment of digits where every character is a piece."""
        if run.value("tokenizer.split_digits") and run.value("tokenizer.model") == "char":
            return {"tokenizer.split_digits": "every character is a piece of its own already"}
        return {}

    def train(
        self, source: Sequence[str], target: Sequence[str], shared: Shared | None = None
    ) -> Tokenizer:
        """A tokenizer of the text.

        source, target: lines of both sides; `target` may be empty.
        shared: finds a model that another run has trained; None: every model is trained.

        Raises UserError if SentencePiece cannot train it, such as for too small a vocabulary.
        """
        sides = 2 if self.joint and len(target) else 1
        source = _drawn(source, self.sample // sides, "the source")
        target = _drawn(target, self.sample // sides, "the target")
        if self.joint:
            name = "both languages" if target else "the text"
            models = 2 * [self._train([*source, *target], name, shared)]
        else:
            models = [
                self._train(source, "the source", shared),
                self._train(target, "the target", shared),
            ]
        return Tokenizer(*models, lowercase=self.lowercase, sampling=self.sampling)

    def _train(self, lines: Sequence[str], name: str, shared: Shared | None) -> bytes:
        texts = prepared(lines, self.lowercase)
        num_cut = sum(len(line) > LONGEST for line in texts)
        if num_cut:
            log.warning(
                "tokenizer: only the first %s characters of %s longer lines are trained on",
                f"{LONGEST:,}",
                f"{num_cut:,}",
            )
        texts = [line[:LONGEST] for line in texts]
        size = self.vocabulary_size
        try:
            model = self._fit(texts, shared)
        except RuntimeError as error:
            least = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
            why = f"it has {int(least[1]):,} characters and symbols" if least else str(error)
            raise UserError(
                f"tokenizer: SentencePiece cannot train a vocabulary of {size:,} on {name}: "
                f"{why}. Try another sizes.vocabulary (or tokenizer.vocabulary_size), "
                "tokenizer.byte_fallback=true or tokenizer=char"
            ) from error
        num_pieces = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
        if num_pieces < size and self.model in ("unigram", "bpe"):
            log.info(
                "vocabulary of %s: %s pieces, as many as the text supports (requested: %s)",
                name,
                f"{num_pieces:,}",
                f"{size:,}",
            )
        return model

    def _fit(self, texts: list[str], shared: Shared | None) -> bytes:
        """A SentencePiece model of a text: trained, or shared by earlier runs on the same text."""
        if shared is None:
            return self._fitted(texts)
        # Settings and text determine the model.
        settings = (self.model, self.vocabulary_size, sorted(self.options.items()))
        key = hashlib.sha256(repr(settings).encode())
        for text in texts:
            key.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return shared(key.hexdigest(), lambda: self._fitted(texts))

    def _fitted(self, texts: list[str]) -> bytes:
        writer = io.BytesIO()
        size = self.vocabulary_size
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


def _drawn(lines: Sequence[str], num_characters: int, name: str) -> Sequence[str]:
    """Lines with about `num_characters` characters, evenly drawn; all lines if they are shorter."""
    # Stored text is read from disk: its length is estimated.
    lengths = [len(lines[i]) for i in range(0, len(lines), max(1, len(lines) // MEASURED))]
    mean = sum(lengths) / max(1, len(lengths))
    share = num_characters / max(1.0, mean * len(lines))
    if share >= 1:
        return lines
    log.info(
        "tokenizer: trained on %.1f %% of the lines of %s, evenly drawn (tokenizer.sample)",
        100 * share,
        name,
    )
    drawn = np.flatnonzero(np.random.default_rng(0).random(len(lines)) < share)
    return [lines[i] for i in drawn.tolist()]


class SentencePieceFile:
    """A trained tokenizer in files of SentencePiece.

    model: file of both languages, or of the source.
    target: file of the target; None: `model` is for both.
    lowercase: whether texts become lowercase.
    sampling: see `SentencePiece`.

    The ids of its special symbols are changed to those of nmt/foundation/interfaces.py.
    """

    def __init__(
        self,
        *,
        model: str,
        target: str | None = None,
        lowercase: bool = False,
        sampling: Ratio = 0.0,
    ) -> None:
        self.files = {"model": model} if target is None else {"model": model, "target": target}
        self.lowercase = lowercase
        self.sampling = sampling

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """The size of the vocabulary, which the files have."""
        return {"sizes.vocabulary": "the vocabulary is that of tokenizer.model"}

    def train(
        self, source: Sequence[str], target: Sequence[str], shared: Shared | None = None
    ) -> Tokenizer:
        """Reads the files; no argument is used. Raises UserError if a file cannot be used."""
        models = []
        for key, name in self.files.items():
            models.append(_read_model(f"tokenizer.{key}={name}", Path(name)))
            if self.sampling and kind(models[-1]) not in ("unigram", "bpe"):
                raise UserError(
                    f"tokenizer.sampling={self.sampling:g}: {name} is neither a unigram nor a BPE "
                    "model; set it to 0"
                )
        return Tokenizer(models[0], models[-1], lowercase=self.lowercase, sampling=self.sampling)


def _read_model(place: str, file: Path) -> bytes:
    """A SentencePiece model with our ids; `place` is the setting, for messages."""
    try:
        model = with_our_ids(file.read_bytes())
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except OSError as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise UserError(f"{place}: cannot be read ({why})") from error
    except Exception as error:  # SentencePiece and protocol buffers raise errors of many types
        raise UserError(f"{place}: not a SentencePiece model") from error
    return model


Untrained = SentencePiece | SentencePieceFile
"""Settings of a tokenizer that is not trained or read yet."""
