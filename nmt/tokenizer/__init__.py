"""Tokenizers that map text to token ids and back, based on SentencePiece (Kudo & Richardson 2018).

A tokenizer is trained once on the training data and stored in the checkpoint. SentencePiece also
encodes spaces, so that neither pre-tokenisation nor detokenisation is needed.

Modules in reading order: this file, tokenizer, words, columns, sentencepiece_models, sampling.
"""

import functools
import io
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import sentencepiece

from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.interfaces import BOS, EOS, PAD, UNK
from nmt.foundation.part_limits import RunView, idle_keys
from nmt.foundation.progress import waiting
from nmt.foundation.ranges import Range, Ratio, Size
from nmt.tokenizer.sentencepiece_models import can_be_sampled, with_our_ids
from nmt.tokenizer.tokenizer import Tokenizer, prepared

__all__ = ["SentencePiece", "SentencePieceFile", "Tokenizer", "Untrained"]
log = logging.getLogger(__name__)
Train = Callable[[list[str]], bytes]
"""Function that trains a SentencePiece model on lines."""
Shared = Callable[[object, list[str], Train], bytes]
"""Function (settings, lines, train) that returns a cached SentencePiece model.

If the cache has no model for the settings and lines, `train` trains it.
"""
MEASURED = 10_000
"""Number of lines sampled to estimate the mean line length."""
LONGEST = 10_000
"""Maximum number of characters per training line of a tokenizer; SentencePiece's training time is
quadratic in the length."""
LONGEST_WORD = 7_900
"""Maximum number of bytes of a word in the vocabulary of `tokenizer=word`; SentencePiece cannot
load longer words."""
RESERVED = "\u2585"
"""Character that SentencePiece uses itself; its training skips all lines with this character."""


class SentencePiece:
    """Settings for training a SentencePiece tokenizer.

    model: algorithm: unigram (Kudo 2018), bpe (Sennrich et al. 2016), char or word
    vocabulary_size: number of subword units, including special symbols
    joint: whether both languages share one vocabulary
    lowercase: whether text is lowercased before encoding
    normalization: SentencePiece rule; identity keeps all characters, nfkc also changes
        translations, such as ½ to 1⁄2
    byte_fallback: whether unknown characters are encoded as UTF-8 bytes instead of <unk>
    split_digits: whether every digit is a token of its own
    character_coverage: fraction of the characters in the training data that the vocabulary covers
    reserve: fraction of `vocabulary_size` that is reserved for subwords of several characters, for
        unigram and bpe; if the characters of the text leave fewer subwords, the vocabulary is
        enlarged. 0 never enlarges the vocabulary
    sampling: strength of random segmentation in each epoch, 0 disables it; smoothing α of subword
        regularisation for unigram, rate of BPE-dropout (Provilkov et al. 2020) for bpe
    sample: maximum number of training characters; lines of larger corpora are sampled uniformly

    Raises ValueError if `sampling` is set for char or word.
    """

    def __init__(
        self,
        *,
        model: Literal["unigram", "bpe", "char", "word"] = "unigram",
        vocabulary_size: Annotated[int, Range(4, 10_000_000)] = 8000,
        joint: bool = True,
        lowercase: bool = False,
        normalization: Literal["identity", "nfkc", "nmt_nfkc", "nmt_nfkc_cf"] = "identity",
        byte_fallback: bool = False,
        split_digits: bool = False,
        character_coverage: Annotated[float, Range(0.98, 1.0)] = 1.0,
        reserve: Ratio = 0.0,
        sampling: Ratio = 0.0,
        sample: Size = 20_000_000,
    ) -> None:
        if sampling and model not in ("unigram", "bpe"):
            raise ValueError(
                f"tokenizer.sampling={sampling:g}: only unigram and bpe can sample segmentations; "
                "set tokenizer.sampling=0"
            )
        self.model = model
        self.vocabulary_size = vocabulary_size
        self.joint = joint
        self.lowercase = lowercase
        # Arguments of SentencePiece's trainer
        self.options: dict[str, Any] = {
            "normalization_rule_name": normalization,
            "byte_fallback": byte_fallback,
            "split_digits": split_digits,
            "character_coverage": character_coverage,
        }
        self.reserve = reserve if model in ("unigram", "bpe") else 0.0
        self.sampling = sampling
        self.sample = sample

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the keys that have no effect with this type of model, each with the reason."""
        model = run.value("tokenizer.model")
        return idle_keys(
            (
                bool(run.value("tokenizer.split_digits")) and model == "char",
                "with tokenizer=char, every character is already a token",
                "tokenizer.split_digits",
            ),
            (
                bool(run.value("tokenizer.split_digits")) and model == "word",
                "with tokenizer=word, words are not split",
                "tokenizer.split_digits",
            ),
            (
                bool(run.value("tokenizer.reserve")) and model not in ("unigram", "bpe"),
                f"with tokenizer={model}, there are no subwords",
                "tokenizer.reserve",
            ),
        )

    def train(
        self, source: Sequence[str], target: Sequence[str], shared: Shared | None = None
    ) -> Tokenizer:
        """Trains a tokenizer.

        source: source lines
        target: target lines; may be empty
        shared: cache of trained SentencePiece models; None disables the cache

        Raises UserError if SentencePiece fails, for example because the vocabulary is too small.
        """
        sides = 2 if self.joint and len(target) else 1
        source = _drawn(source, self.sample // sides, "the source")
        target = _drawn(target, self.sample // sides, "the target")
        if self.joint:
            name = "joint" if target else "text"
            models = 2 * [self._train([*source, *target], name, shared)]
        else:
            models = [
                self._train(source, "source", shared),
                self._train(target, "target", shared),
            ]
        return Tokenizer(*models, lowercase=self.lowercase, sampling=self.sampling)

    def _train(self, lines: Sequence[str], name: str, shared: Shared | None) -> bytes:
        texts = [line.replace(RESERVED, " ") for line in prepared(lines, self.lowercase)]
        if self.model == "word":  # words also end at other spaces than U+0020
            texts = [" ".join(filter(_is_loadable, line.split())) for line in texts]
        if not any(texts):
            raise UserError(
                f"tokenizer: no {name} text to train a vocabulary; check the training data, or raise "
                "tokenizer.sample"
            )
        num_cut = sum(len(line) > LONGEST for line in texts)
        if num_cut:
            log.warning(
                "tokenizer: %s lines are longer than %s characters; the tokenizer is trained "
                "only on the beginnings of these lines",
                f"{num_cut:,}",
                f"{LONGEST:,}",
            )
        texts = [line[:LONGEST] for line in texts]
        size = self._vocabulary_size_for(texts)
        fit = functools.partial(self._fitted, size)
        try:
            # The model is a function of the settings and the lines.
            settings = (self.model, size, sorted(self.options.items()))
            model = shared(settings, texts, fit) if shared else fit(texts)
        except RuntimeError as error:
            least = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
            why = f"at least {int(least[1]):,} symbols are required" if least else str(error)
            remedy = "lower tokenizer.character_coverage"
            if not self.options["byte_fallback"]:
                remedy += " (tokenizer.byte_fallback=true keeps the rare characters as bytes)"
            raise UsageError(
                f"tokenizer: SentencePiece cannot train a {name} vocabulary of {size:,} subwords "
                f"({why}). Raise sizes.vocabulary (or tokenizer.vocabulary_size), {remedy}, or set "
                "tokenizer=char"
            ) from error
        num_pieces = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
        if num_pieces < size and self.model in ("unigram", "bpe"):
            log.info(
                "tokenizer: the %s vocabulary has %s subwords, the maximum for this "
                "training text (requested: %s)",
                name,
                f"{num_pieces:,}",
                f"{size:,}",
            )
        return model

    def _vocabulary_size_for(self, texts: list[str]) -> int:
        """Returns `vocabulary_size`, or a larger number of subwords if the special symbols and the
        different characters of the training text leave less than the fraction `reserve` for longer
        subwords."""
        if not self.reserve:
            return self.vocabulary_size
        characters = len(set().union(*texts))
        byte_tokens = 256 if self.options["byte_fallback"] else 0
        reserved = round(self.reserve * self.vocabulary_size)
        needed = len((PAD, UNK, BOS, EOS)) + byte_tokens + characters + reserved
        if needed <= self.vocabulary_size:
            return self.vocabulary_size
        log.info(
            "tokenizer: the vocabulary is enlarged from %s to %s subwords (tokenizer.reserve), "
            "because the text has %s different characters",
            f"{self.vocabulary_size:,}",
            f"{needed:,}",
            f"{characters:,}",
        )
        return needed

    def _fitted(self, size: int, texts: list[str]) -> bytes:
        writer = io.BytesIO()
        with waiting(f"training a tokenizer vocabulary of {size:,} on {len(texts):,} lines"):
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
                num_threads=2,  # fixed, since the result depends on the number of threads
                minloglevel=2,
                **self.options,
            )
        return writer.getvalue()


def _is_loadable(word: str) -> bool:
    return len(word.encode()) <= LONGEST_WORD


def _drawn(lines: Sequence[str], num_characters: int, name: str) -> Sequence[str]:
    """Returns uniformly sampled lines with about `num_characters` characters in total."""
    # Lines may be stored on disk, so the mean length is estimated from a sample.
    lengths = [len(lines[i]) for i in range(0, len(lines), max(1, len(lines) // MEASURED))]
    mean = sum(lengths) / max(1, len(lengths))
    share = num_characters / max(1.0, mean * len(lines))
    if share >= 1:
        return lines
    log.info(
        "tokenizer: training on a random sample of %.1f %% of the lines of %s "
        "(tokenizer.sample limits the number of characters)",
        100 * share,
        name,
    )
    drawn = np.flatnonzero(np.random.default_rng(0).random(len(lines)) < share)
    return [lines[i] for i in drawn.tolist()]


class SentencePieceFile:
    """Settings for loading SentencePiece model files that have been trained elsewhere.

    model: file for both languages, or for the source if `target` is set
    target: file for the target language; None uses `model`
    lowercase: whether text is lowercased before encoding
    sampling: strength of random segmentation in each epoch, 0 to 1; 0 disables it

    The ids of the special symbols are changed to PAD = 0, UNK = 1, BOS = 2 and EOS = 3.
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
        """Returns the keys of the vocabulary, each with the reason why it has no effect."""
        return {
            "sizes.vocabulary": "the file tokenizer.model determines the vocabulary",
            "init_vocabulary": "the tokenizer of init= is a file, to which nmt adds no subwords",
        }

    def train(
        self, source: Sequence[str], target: Sequence[str], shared: Shared | None = None
    ) -> Tokenizer:
        """Loads the model files, without training.

        The arguments are ignored; they exist because all choices of the group `tokenizer` have the
        same method.

        Raises UserError if a file cannot be used.
        """
        models = []
        for key, name in self.files.items():
            models.append(_read_model(f"tokenizer.{key}={name}", Path(name)))
            if self.sampling and not can_be_sampled(models[-1]):
                raise UserError(
                    f"tokenizer.sampling={self.sampling:g}: {name} is neither a unigram nor a BPE "
                    "model, or it has user-defined symbols, treat_whitespace_as_suffix, or subwords "
                    "of several words; set tokenizer.sampling=0"
                )
        return Tokenizer(models[0], models[-1], lowercase=self.lowercase, sampling=self.sampling)


def _read_model(place: str, file: Path) -> bytes:
    """Returns the bytes of a SentencePiece model file, with the special symbol ids of nmt.

    place: setting that names the file, for messages
    file: path of the model
    """
    try:
        model = with_our_ids(file.read_bytes())
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except FileNotFoundError:
        raise UsageError(f"{place}: file not found") from None
    except OSError as error:
        raise UserError(f"{place}: cannot be read ({error.strerror})") from error
    except Exception as error:  # SentencePiece and protobuf raise many exception types
        raise UserError(f"{place}: not a SentencePiece model") from error
    return model


Untrained = SentencePiece | SentencePieceFile
"""Type of tokenizer settings, from which a tokenizer is trained or loaded."""
