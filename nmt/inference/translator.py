"""Translation of text with a model or an ensemble.

nmt.translate, nmt.evaluate and nmt.serve use this module.
"""

import copy
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, overload

import numpy as np
import torch

from nmt.data.documents import sentences
from nmt.data.text_encoding import check_lines
from nmt.drawing.attention_map import AttentionMap
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.interfaces import Hypothesis, Prepared, Request, Reranker, Search
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import Count, Length, Range, Size
from nmt.inference.constraint import PREFIX_IS_FORBIDDEN, Constraint, PrefixSpeller
from nmt.inference.forced_decoder import FORCED_TOKENS, ForcedDecoder
from nmt.inference.model_step import Averaging
from nmt.inference.networks import Networks
from nmt.inference.parallel import (
    ProgressCallback,
    length_batches,
    no_progress,
    results_in_batches,
)
from nmt.inference.translation import Translation
from nmt.inference.unknown_words import Unknown, replace_unknown_words
from nmt.model.layers.packed import GenerationPrecision
from nmt.model.seq2seq import Seq2Seq
from nmt.search.constrained import Constrained
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.columns import length_of, picture_of
from nmt.tokenizer.words import Units, check_units


class Translator(ForcedDecoder):
    """Translator of text: a model or an ensemble, with its tokenizer and a search.

    The models are in evaluation mode; their weights must not change while the translator is in use.
    Several threads may use one translator at the same time.

    models: single model, or the members of an ensemble
    tokenizer: tokenizer of the models
    search: search algorithm, such as beam search
    batch_tokens: maximum number of source positions per batch, padding included
    max_length_factor, max_length_offset: limit of the translation length,
        factor · source tokens + offset, in tokens
    no_repeat_ngram_size: number of tokens of the sequences that a translation may contain only
        once; 0: sequences may be repeated
    max_source: maximum number of source tokens per line; longer lines are truncated, with a warning
    unknown: treatment of unknown words: `mark`, `drop` or `copy` (nmt/inference/unknown_words.py)
    lexicon: mapping from source words to the translations that replace unknown words, for
        unknown="copy"
    precision: numerical precision of the weights: float32, bfloat16 or int8
    averaging: quantity of the ensemble members that is averaged: probability or log_probability
    shares: weight of each ensemble member, normalised to sum 1; None for equal weights
    capture: whether search steps are recorded for a few batch shapes and replayed, as CUDA graphs
        on a GPU; on a CPU, only for tests
    languages: names of the source and target languages, quoted in messages
    typical_words: typical words of the sides "source" and "target" of the training text, with which
        input in the target language is detected; None disables the detection

    Raises UserError if the models do not support the options.
    """

    def __init__(
        self,
        models: Seq2Seq | Sequence[Seq2Seq],
        tokenizer: Tokenizer,
        search: Search,
        *,
        batch_tokens: Size = 1500,
        max_length_factor: Annotated[float, Range(0, 100)] = 2.0,
        max_length_offset: Length = 10,
        no_repeat_ngram_size: Count = 0,
        max_source: Length = 1000,
        unknown: Unknown = "mark",
        lexicon: Mapping[str, str] | None = None,
        precision: GenerationPrecision = "float32",
        averaging: Averaging = "probability",
        shares: Sequence[float] | None = None,
        capture: bool = False,
        languages: tuple[str, str] = ("source", "target"),
        typical_words: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        members = [models] if isinstance(models, Seq2Seq) else list(models)
        super().__init__(
            Networks(members, tokenizer.columns, precision, averaging, shares, capture),
            tokenizer,
            max_source=max_source,
            languages=languages,
            typical_words=typical_words,
        )
        self.search = search
        self.batch_tokens = batch_tokens
        self.max_length_factor = max_length_factor
        self.max_length_offset = max_length_offset
        self.no_repeat_ngram_size = no_repeat_ngram_size
        self.unknown = unknown
        self.lexicon = lexicon or {}
        self._check_options()

    def _check_options(self) -> None:
        needs_attention = "needs attention, but the model has none (decoder=fixed)"
        if self.unknown == "copy" and not self.attends:
            raise UsageError(
                f"translation.unknown=copy: {needs_attention}; set translation.unknown=drop or "
                "translation.unknown=mark"
            )
        if self.unknown == "copy" and not self.tokenizer.columns.sources:
            raise UserError(
                "translation.unknown=copy: the model reads images only, so there are no "
                "source words to copy; set translation.unknown=drop or translation.unknown=mark"
            )
        if self.lexicon and self.unknown != "copy":
            raise UsageError(
                f"lexicon: has no effect with translation.unknown={self.unknown}; set "
                "translation.unknown=copy, or leave lexicon out"
            )
        if getattr(self.search, "needs_attention", False) and not self.attends:
            raise UsageError(f"search.coverage: {needs_attention}; set search.coverage=0")

    def __repr__(self) -> str:
        source, target = self.languages
        decoders = " + ".join(type(model.decoder).__name__ for model in self.models)
        search = type(self.search).__name__.lower()
        precision = self.networks.packed_weights.precision
        return f"Translator({source} → {target}, {decoders}, {search}, {precision})"

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error for `unknown=copy` if the model has no attention or reads no source
        words."""
        key = "translation.unknown"
        if run.value(key) != "copy":
            return
        yield from run.needing_attention(key)
        if not run.sources:
            yield run.error(
                key,
                "the model reads images only, so there are no source words to copy; set "
                f"{key}=drop or {key}=mark",
            )

    def with_search(self, search: Search) -> "Translator":
        """Returns a new translator with the same models and the given search."""
        translator = copy.copy(self)
        translator.search = search
        return translator

    def with_whole_beam(self) -> "Translator":
        """Returns a translator whose search returns all hypotheses of its beam.

        Searches without a beam, and searches with `n_best` above 1, are not changed.
        """
        search = copy.copy(self.search)
        if hasattr(search, "width") and getattr(search, "n_best", None) == 1:
            search.n_best = search.width  # type: ignore[attr-defined]
        return self.with_search(search)

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, lines: str, progress: ProgressCallback = ...
    ) -> str: ...
    @overload
    def translate(self, lines: Sequence[str], progress: ProgressCallback = ...) -> list[str]: ...
    def translate(
        self, lines: str | Sequence[str], progress: ProgressCallback = no_progress
    ) -> str | list[str]:
        """Translates lines. Returns one translation per line, or an empty string for a line without
        words.

        lines: list of lines, or a single string; lines are not split into sentences
        progress: callback after each batch, which receives the number of lines in the batch
        """
        if isinstance(lines, str):
            return self.translations(lines, progress=progress).text
        return [translation.text for translation in self.translations(lines, progress=progress)]

    def for_column(
        self, source: str, translation: str = "translation"
    ) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Returns a function that adds translations to a dataset of the `datasets` library.

        Example: `dataset.map(translator.for_column("de"), batched=True)`.

        source: name of the column to translate
        translation: name of the new column

        The returned function raises UserError if the column is missing.
        """

        def translated(rows: Mapping[str, Any]) -> dict[str, Any]:
            if source not in rows:
                raise UserError(
                    f"data: column {source} not found (available: {', '.join(map(str, rows))})"
                )
            column = rows[source]  # a single text without batched=True
            return {
                translation: self.translate(column if isinstance(column, str) else list(column))
            }

        return translated

    @overload
    def translations(  # type: ignore[overload-overlap]
        self,
        lines: str,
        constraints: Constraint | None = None,
        details_of: int = 0,
        progress: ProgressCallback = ...,
    ) -> Translation: ...
    @overload
    def translations(
        self,
        lines: Sequence[str],
        constraints: Sequence[Constraint] | None = None,
        details_of: int = 0,
        progress: ProgressCallback = ...,
    ) -> list[Translation]: ...
    def translations(
        self,
        lines: str | Sequence[str],
        constraints: Constraint | Sequence[Constraint] | None = None,
        details_of: int = 0,
        progress: ProgressCallback = no_progress,
    ) -> Translation | list[Translation]:
        """Returns all hypotheses that the search finds for each line, with their texts.

        lines: list of lines, or a single string for a single result
        constraints: one constraint per line, or one for a single string; None if unconstrained
        details_of: number of best hypotheses per line with token probabilities and attention
        progress: callback after each batch, which receives the number of lines in the batch

        Raises UserError if a constraint contradicts itself or the vocabulary cannot spell it, and
        TypeError or ValueError unless there is a constraint for each line.
        """
        if isinstance(constraints, Constraint):
            constraints = [constraints]
        if isinstance(lines, str):
            if len(sentences(lines)) > 1:
                self._warn_once(
                    "the string has several sentences, but is translated as one line: "
                    "give a list of sentences, such as nmt.data.documents.sentences(text)"
                )
            return self.translations([lines], constraints, details_of, progress)[0]
        lines = check_lines(lines)
        sources = self.encode(lines)
        requests = self._requests(sources, constraints)
        translations = [Translation(source, [], [], []) for source in sources]

        def translate_batch(batch: list[int]) -> list[Translation]:
            of_batch = [requests[i] for i in batch]
            return self._translate_batch([sources[i] for i in batch], of_batch, details_of)

        with_words = [i for i, source in enumerate(sources) if source]
        lengths = [length_of(source) + 1 for source in sources]  # source tokens and </s>
        batches = length_batches(with_words, lengths, self.batch_tokens)
        results = results_in_batches(
            translate_batch, batches, lengths, self.networks.device, "translating", progress
        )
        for i, translation in results:
            translations[i] = translation
        progress(len(lines) - len(with_words))
        self._check_constraints(translations, requests)
        if self.unknown == "mark":
            return translations
        self._replace_unknown_words(lines, translations, constraints)
        return self._without_repetition(translations)

    def _replace_unknown_words(
        self,
        lines: Sequence[str],
        translations: Sequence[Translation],
        constraints: Sequence[Constraint] | None,
    ) -> None:
        force = self.force if self.unknown == "copy" else None
        lexicon = next(filter(None, (model.lexicon for model in self.models)), None)
        replace_unknown_words(
            lines, translations, self.tokenizer, force, self.lexicon, lexicon, constraints
        )

    def request(self, source: Sequence[int]) -> Request:
        """Returns the search request of an encoded line: length limit, random seed, and number of
        tokens of the sequences that must not be repeated."""
        limit = int(self.max_length_factor * length_of(source)) + self.max_length_offset
        seed = zlib.crc32(np.asarray(source, np.int64).tobytes())  # the same samples in every batch
        return Request(
            max_length=limit,
            seed=zlib.crc32(picture_of(source).encode(), seed),
            no_repeat_ngram_size=self.no_repeat_ngram_size,
        )

    def check_line(self, line: str) -> None:
        """Raises UserError if an input line lacks source columns of the models, or names an image
        that they cannot read."""
        columns = self.tokenizer.columns
        columns.split(line)
        picture = columns.picture_in(line)
        for model in self.networks.models:
            if picture and model.encoder.reader is not None:
                model.encoder.reader([picture])

    def check_scored_line(self, line: str) -> None:
        """Raises UserError if the translation of a line cannot be scored: the line lacks source
        columns, or the image that the models need."""
        if not (self.tokenizer.columns.sources or line.strip()):
            raise UserError("the line is empty; expected the name of an image")
        self.check_line(line)

    def check_constraint(self, constraint: Constraint) -> None:
        """Raises UserError if the vocabulary cannot spell a constraint, or the constraint
        contradicts itself."""
        self._constrained(Request(max_length=1), constraint)

    def _requests(
        self,
        sources: Sequence[Sequence[int]],
        constraints: Sequence[Constraint] | None,
    ) -> list[Request]:
        requests = [self.request(source) for source in sources]
        if constraints is None:
            return requests
        if len(constraints) != len(requests):
            raise ValueError(
                f"constraints: give one per line (got {len(constraints)} for {len(requests)} lines)"
            )
        for constraint in constraints:
            if not isinstance(constraint, Constraint):
                raise TypeError(f"constraints: must be Constraint objects, got {constraint!r}")
        return [
            self._constrained(request, constraint)
            for request, constraint in zip(requests, constraints, strict=True)
        ]

    def _constrained(self, request: Request, constraint: Constraint) -> Request:
        return constraint.added_to(request, self._speller, spare_tokens=self.max_length_offset)

    @cached_property
    def _speller(self) -> PrefixSpeller:
        return PrefixSpeller(self.tokenizer)

    @torch.inference_mode()
    def _translate_batch(
        self, sources: list[Sequence[int]], requests: list[Request], details_of: int
    ) -> list[Translation]:
        captured = self.networks.captures
        memories = self.networks.memories(sources, captured)
        with self.networks.generating():
            step, state = self.networks.first_step(memories, len(sources) if captured else None)
            if any(request.constrained for request in requests):
                step = Constrained(step, requests)  # any search can use it
                state = step.initial_state(state)
            hypotheses = self.search(step, state, requests)
        translations = self._with_texts(sources, hypotheses)
        if details_of:
            self._add_details(translations, memories, details_of)
        return translations

    def _with_texts(
        self, sources: list[Sequence[int]], hypotheses: list[list[Hypothesis]]
    ) -> list[Translation]:
        """Returns the translations with the texts of their hypotheses. Hypotheses are reranked by
        text if the search supports it (MBR); otherwise, repeated texts are removed.
        """
        texts = iter(self.tokenizer.decode([h.tokens for several in hypotheses for h in several]))
        translations = [
            Translation(source, several, [next(texts) for _ in several], [])
            for source, several in zip(sources, hypotheses, strict=True)
        ]
        if isinstance(self.search, Reranker):
            return [translation.reranked(self.search) for translation in translations]
        return self._without_repetition(translations)

    def _without_repetition(self, translations: list[Translation]) -> list[Translation]:
        """Removes hypotheses that have the same text as a better hypothesis, but a different
        segmentation into subwords.
        """
        if getattr(self.search, "repeats", False):
            return translations  # the search draws samples, in which duplicates are kept
        return [translation.distinct() for translation in translations]

    def _add_details(
        self, translations: list[Translation], memories: Sequence[Prepared], details_of: int
    ) -> None:
        rows = [
            (i, hypothesis.tokens)
            for i, translation in enumerate(translations)
            for hypothesis in translation.hypotheses[:details_of]
        ]
        source_lengths = [length_of(translation.source) for translation in translations]
        target_lengths = [len(tokens) for _, tokens in rows]
        batch_size = max(1, FORCED_TOKENS // max(1, *source_lengths, *target_lengths))
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            sentences = torch.tensor([i for i, _ in batch], device=self.networks.device)  # [b]
            decodings = self.networks.force(
                memories=[memory.select(sentences) for memory in memories],
                sources=[translations[i].source for i, _ in batch],
                targets=[tokens for _, tokens in batch],
                attention=True,
            )
            for (i, _), decoding in zip(batch, decodings, strict=True):
                translations[i].details.append(decoding)

    def _check_constraints(
        self, translations: Sequence[Translation], requests: Sequence[Request]
    ) -> None:
        """Raises UserError if the search has found no translation that meets the constraints."""
        for translation, request in zip(translations, requests, strict=True):
            is_possible = any(h.log_prob > -math.inf for h in translation.hypotheses)
            if is_possible or not translation.source:
                continue
            required = self.tokenizer.decode([list(ids) for ids in request.required])
            if required:
                raise UserError(
                    f"constraints: no translation can contain all of {', '.join(required)}; "
                    "remove forbidden words that conflict with required words"
                )
            if request.spellings:
                raise UserError(PREFIX_IS_FORBIDDEN)

    def attention(
        self, text: str, translation: str | None = None, units: Units = "word"
    ) -> AttentionMap:
        """Returns the attention map of a text and its translation.

        text: source text
        translation: given translation; None uses the model's own translation
        units: units of the map: words or subwords

        Raises UserError if the model has no attention, or the text has no words and no translation
        is given.
        """
        if not isinstance(text, str):
            raise TypeError(f"text: expected one string, got {type(text).__name__}")
        if not self.attends:
            raise UserError(
                "attention: the model has no attention (decoder=fixed); load another model"
            )
        check_units(units)
        check_lines([text] if translation is None else [text, translation])
        if translation is None:
            answer = self.translations(text, details_of=1)
            maps = self.attention_maps([text], [answer], units=units)
        else:
            maps = self.forced_maps([text], [translation], units)
        if not maps:
            raise UserError("text: contains no words; give a sentence")
        return maps[0]
