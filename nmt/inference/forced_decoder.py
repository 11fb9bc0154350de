"""Scores and attention weights of given translations.

A network or an ensemble is forced to produce the tokens of a given translation.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch

from nmt.data.swapped_sides import is_in_target_language
from nmt.data.text_encoding import check_lines
from nmt.drawing.attention_map import AttentionMap
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, UNK, Hypothesis
from nmt.inference.networks import Networks
from nmt.inference.parallel import (
    ProgressCallback,
    length_batches,
    no_progress,
    results_in_batches,
)
from nmt.inference.translation import ForcedDecoding, Translation
from nmt.inference.word_alignment import attention_map
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.columns import length_of
from nmt.tokenizer.words import SPACE, Units

log = logging.getLogger(__name__)
FORCED_TOKENS = 4000
"""Maximum number of target positions per batch of forced decoding, padding included."""


class ForcedDecoder:
    """Network or ensemble with its tokenizer: encodes text, and computes scores and attention
    weights of given translations.

    networks: network or ensemble in evaluation mode
    tokenizer: tokenizer of the networks
    max_source: maximum number of source tokens per line; longer lines are truncated, with a warning
    languages: names of the source and target languages, quoted in messages
    typical_words: typical words of the sides "source" and "target" of the training text, with which
        input in the target language is detected; None disables the detection
    """

    def __init__(
        self,
        networks: Networks,
        tokenizer: Tokenizer,
        *,
        max_source: int,
        languages: tuple[str, str],
        typical_words: Mapping[str, Sequence[str]] | None,
    ) -> None:
        self.networks = networks
        self.models = networks.models
        self.attends = any(model.decoder.attends for model in networks.models)
        self.tokenizer = tokenizer
        self.max_source = max_source
        self.languages = languages
        self.typical_words = {
            side: frozenset(words_of_side) for side, words_of_side in (typical_words or {}).items()
        }
        self._warnings: set[str] = set()

    @cached_property
    def encoder_hash(self) -> str:
        """SHA-256 hash of the encoder weights of the first model."""
        digest = hashlib.sha256()
        for name, weight in sorted(self.models[0].encoder.state_dict().items()):
            digest.update(name.encode() + weight.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def encode(self, lines: Sequence[str]) -> list[Sequence[int]]:
        """Returns the source token ids of each line, truncated to `max_source` tokens.

        Raises TypeError if `lines` is a single string.
        """
        lines = check_lines(lines)
        if self.tokenizer.columns.plain and any("\t" in line for line in lines):
            self._warn_once(
                "the input has tabs: the model reads one text per line and treats a tab as a "
                "space; write one column to a file, e.g. with cut -f1"
            )
        sources = self.tokenizer.encode_source(lines)
        for i, source in enumerate(sources):
            if len(source) > self.max_source:
                log.warning(
                    'line "%s …" has %s tokens: only the first %s tokens are read',
                    lines[i][:40],
                    len(source),
                    self.max_source,
                )
                sources[i] = self.tokenizer.columns.shortened(source, self.max_source)
        self._warn_of_unknown_lines(lines, sources)
        if is_in_target_language(lines, self.typical_words):
            self._warn_once(
                f"the input seems to be in the target language of the model ({self.languages[1]}): "
                f"the model translates from {self.languages[0]}"
            )
        return sources

    def _warn_once(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.add(message)
            log.warning(message)

    def _warn_of_unknown_lines(
        self, lines: Sequence[str], sources: Sequence[Sequence[int]]
    ) -> None:
        unknown = [
            line
            for line, source in zip(lines, sources, strict=True)
            if self._is_mostly_unknown(source)
        ]
        if unknown:
            log.warning(
                "input: in %s of %s lines, most words are not in the vocabulary (first such line: "
                '"%s"); check that the input is in the source language of the model (%s)',
                f"{len(unknown):,}",
                f"{len(lines):,}",
                unknown[0][:40],
                self.languages[0],
            )

    def _is_mostly_unknown(self, source: Sequence[int]) -> bool:
        """Returns whether a source has more unknown than known tokens. The token of a space is
        neither, because an unknown word may be two tokens, ▁ and <unk>."""
        # With factors, ids are combinations of subwords and factor values.
        num_unknown = [token % self.tokenizer.source_size for token in source].count(UNK)
        if num_unknown == 0:
            return False
        num_spaces = self.tokenizer.source_pieces(source).count(SPACE)
        num_known = len(source) - num_unknown - num_spaces - source.count(EOS)
        return num_unknown > num_known

    def force(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        attention: bool = True,
        progress: ProgressCallback = no_progress,
    ) -> list[ForcedDecoding]:
        """Returns the token probabilities and attention weights of given translations.

        sources, targets: token ids of each sentence pair; an empty text is read as </s>
        attention: whether to return attention weights
        progress: callback after each batch, which receives the number of lines in the batch

        Raises ValueError unless there is a target for each source, and UserError if a source of a
        model for images has no image.
        """
        if len(sources) != len(targets):
            raise ValueError(
                f"targets: give one per source (got {len(targets)} for {len(sources)} sources)"
            )

        if not self.tokenizer.columns.sources and not all(sources):
            raise UserError("source: a line is empty; expected the name of an image on every line")

        @torch.inference_mode()
        def force_batch(batch: list[int]) -> list[ForcedDecoding]:
            batch_sources = [sources[i] for i in batch]
            batch_targets = [targets[i] for i in batch]
            return self.networks.force(
                self.networks.memories(batch_sources), batch_sources, batch_targets, attention
            )

        # Length of the longer side with </s>, because both sides are padded.
        lengths = [1 + max(length_of(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        batches = length_batches(range(len(sources)), lengths, FORCED_TOKENS)
        decodings = dict(
            results_in_batches(
                force_batch, batches, lengths, self.networks.device, "scoring", progress
            )
        )
        return [decodings[i] for i in range(len(sources))]

    def attention_maps(
        self,
        lines: Sequence[str],
        translations: Sequence[Translation],
        name: str = "",
        others: Mapping[str, "ForcedDecoder"] | None = None,
        units: Units = "word",
    ) -> list[AttentionMap]:
        """Returns the attention maps of this model and of other models for the same translations.

        lines: source lines; lines without a translation are left out
        translations: translation of each line, computed with details_of=1
        name: name of this model, shown in the maps
        others: further translators by name; each is forced to produce the given translations, and
            is left out if it has no attention
        units: units of the maps: words or subwords; several heads are shown separately

        Raises UserError if the units are subwords and the tokenizer of a model differs from that of
        the translation model.
        """
        pairs = [pair for pair in zip(lines, translations, strict=True) if pair[1].hypotheses]
        maps = [attention_map(self.tokenizer, *pair, units, name, self.languages) for pair in pairs]
        sources = [line for line, _ in pairs]
        texts = [translation.text for _, translation in pairs]
        # The subwords that the search has chosen may differ from those of the encoded text.
        tokens = [translation.hypotheses[0].tokens for _, translation in pairs]
        targets = tokens if units == "piece" else None
        for other_name, other in (others or {}).items():
            if units == "piece" and other.tokenizer.models != self.tokenizer.models:
                raise UserError(
                    f"units=piece: the tokenizer of {other_name} differs from that of the "
                    "translation model; use units=word"
                )
            added = other.forced_maps(sources, texts, units, name=other_name, targets=targets)
            for own_map, other_map in zip(maps, added, strict=True):
                own_map.weights.update(other_map.weights)
                own_map.places.update(other_map.places)
                own_map.probabilities.update(other_map.probabilities)
        return maps

    def forced_maps(
        self,
        lines: Sequence[str],
        texts: Sequence[str],
        units: Units = "word",
        progress: ProgressCallback = no_progress,
        name: str = "",
        targets: Sequence[Sequence[int]] | None = None,
    ) -> list[AttentionMap]:
        """Returns the attention maps of the model when it is forced to produce the given
        translations.

        lines: source lines
        texts: translation of each line
        units: units of the maps: words or subwords
        progress: callback after each batch, which receives the number of lines in the batch
        name: name of the model, shown in the maps
        targets: tokens of each translation; None encodes the texts
        """
        sources = self.encode(lines)
        targets = targets or self.tokenizer.encode_target(list(texts))
        decodings = self.force(sources, targets, progress=progress)
        translations = [
            Translation(
                source, [Hypothesis(list(target), d.log_prob, d.log_prob)], [text], details=[d]
            )
            for source, target, text, d in zip(sources, targets, texts, decodings, strict=True)
        ]
        return self.attention_maps(lines, translations, name, units=units)
