"""Text in, text out. All code that translates or scores uses this file."""

from __future__ import annotations

import copy
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, overload

import numpy as np
import torch

from nmt.data.lines import check_lines
from nmt.drawing.attention_map import AttentionMap
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK, Hypothesis, Request, Reranker, Search
from nmt.foundation.progress import Progress
from nmt.foundation.ranges import Length, Range, Size
from nmt.inference.attention_weights import add, empty
from nmt.inference.model_step import Averaging
from nmt.inference.networks import Networks
from nmt.inference.parallel import parallel_map
from nmt.inference.translation import Constraint, ForcedDecoding, Translation
from nmt.inference.unknown_words import Unknown, filled
from nmt.model.layers.packed import GenerationPrecision
from nmt.model.seq2seq import Seq2Seq
from nmt.search.constrained import Constrained
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.columns import length_of, picture_of
from nmt.tokenizer.words import Units, words

log = logging.getLogger(__name__)
Found = TypeVar("Found")
ProgressCallback = Callable[[int], Any]
"""Is told that so many more lines are done."""
FORCED_TOKENS = 4000
"""Positions of a batch when given translations are scored."""


def _nothing(count: int) -> None:
    """Nobody wants to know."""


class Translator:
    """One model or an ensemble, their tokenizer and a search. The models are in evaluation mode; their weights must not
    change while the translator is in use. Several threads may use one translator at the same time.

    Sentences are encoded, sorted by length, searched in batches of at most `batch_tokens` source positions, and put
    back in order. Longest translation: max_length_factor · source tokens + max_length_offset. Sources longer than
    `max_source` tokens are cut, with a warning. `unknown`: what is written for unknown words, with a `lexicon`: see
    unknown.py. `shares`: weights of the members of an ensemble (default: equal).
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
        max_source: Length = 1000,
        unknown: Unknown = "mark",
        lexicon: Mapping[str, str] | None = None,
        precision: GenerationPrecision = "float32",
        averaging: Averaging = "probability",
        shares: Sequence[float] | None = None,
        languages: tuple[str, str] = ("source", "target"),
    ) -> None:
        each = [models] if isinstance(models, Seq2Seq) else list(models)
        self.networks = Networks(each, tokenizer.columns, precision, averaging, shares)
        self.tokenizer, self.search, self.languages = tokenizer, search, languages
        self.batch_tokens, self.max_source = batch_tokens, max_source
        self.max_length_factor, self.max_length_offset = max_length_factor, max_length_offset
        self.unknown, self.lexicon, self._told = unknown, lexicon or {}, False
        if unknown == "copy" and not self.attends:
            raise UserError(
                "translation.unknown=copy: needs a model with attention, and this one has none; choose drop or mark"
            )
        if unknown == "copy" and not tokenizer.columns.sources:
            raise UserError(
                "translation.unknown=copy: copies source words, and a picture has none; choose drop or mark"
            )
        if lexicon is not None and unknown != "copy":
            raise UserError(
                f"lexicon: is used by translation.unknown=copy only, and it is {unknown}"
            )
        if getattr(search, "needs_attention", False) and not self.attends:
            raise UserError(
                "search.coverage: needs a model with attention, and this one has none; set search.coverage=0"
            )

    def with_search(self, search: Search) -> Translator:
        """The same models with another search."""
        other = copy.copy(self)
        other.search = search
        return other

    @property
    def models(self) -> Sequence[Seq2Seq]:
        return self.networks.models

    @property
    def attends(self) -> bool:
        return self.networks.attends

    @property
    def _ranks(self) -> bool:
        """Whether a list of hypotheses is a ranking, in which no text stands twice."""
        return not getattr(self.search, "repeats", False)

    @overload
    def translate(self, lines: str) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, lines: Sequence[str], progress: ProgressCallback = ...) -> list[str]: ...
    def translate(
        self, lines: str | Sequence[str], progress: ProgressCallback = _nothing
    ) -> str | list[str]:
        """One translation per line; an empty line for a line without words. A string gives a string. `progress` is told how many
        lines are translated, again and again."""
        if isinstance(lines, str):
            return self.translate([lines])[0]
        return [translation.text for translation in self.translations(lines, progress=progress)]

    @overload
    def translations(  # type: ignore[overload-overlap]
        self, lines: str, constraints: Sequence[Constraint] | None = None, details_of: int = 0
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
        constraints: Sequence[Constraint] | None = None,
        details_of: int = 0,
        progress: ProgressCallback = _nothing,
    ) -> Translation | list[Translation]:
        """All hypotheses that the search returns for each line, with their texts. `details_of`: for this many of the
        best hypotheses of each line, also the probabilities of their words and their attention. A string gives one answer.

        Raises UserError if a constraint contradicts itself or cannot be written with this vocabulary.
        """
        if isinstance(lines, str):
            return self.translations([lines], constraints, details_of)[0]
        lines = check_lines(lines)
        sources = self.encode(lines)
        requests = [self.request(source) for source in sources]
        if constraints is not None:
            continuing = self.tokenizer.continuing()
            requests = [
                wish.added_to(request, self.tokenizer, continuing, self.max_length_offset)
                for request, wish in zip(requests, constraints, strict=True)
            ]
        results = [Translation(source, [], [], []) for source in sources]
        batches = list(self._batches(sources))

        def translate(batch: list[int]) -> list[Translation]:
            return self._translate(
                [sources[i] for i in batch], [requests[i] for i in batch], details_of
            )

        for i, translation in self._each(translate, batches, "translating", progress):
            results[i] = translation
        for result, request in zip(results, requests, strict=True):
            if result.source and not result.hypotheses and request.required:
                wanted = ", ".join(
                    self.tokenizer.decode([list(sequence) for sequence in request.required])
                )
                raise UserError(
                    f"constraints: no translation holds all of {wanted}; do they contradict what is forbidden?"
                )
        if self.unknown != "mark":
            self._fill(lines, results)
        return results

    def _fill(self, lines: Sequence[str], results: Sequence[Translation]) -> None:
        """Writes something for unknown words."""
        rows = [
            (line, result, k, hypothesis.tokens)
            for line, result in zip(lines, results, strict=True)
            for k, hypothesis in enumerate(result.hypotheses)
            if UNK in hypothesis.tokens
        ]
        seen: list[np.ndarray | None] = [None] * len(rows)
        if self.unknown == "copy":
            seen = [
                one.weights
                for one in self.force([r.source for _, r, _, _ in rows], [ids for *_, ids in rows])
            ]
        for (line, result, k, tokens), weights in zip(rows, seen, strict=True):
            places = self.tokenizer.source_words(line, result.source)
            its = words(self.tokenizer.columns.words(line))
            result.texts[k] = filled(result.texts[k], tokens, weights, places, its, self.lexicon)
        for result in results if self._ranks else ():
            kept = _first_of_each(result.texts)
            result.details[:] = [result.details[k] for k in kept if k < len(result.details)]
            result.hypotheses[:] = [result.hypotheses[k] for k in kept]
            result.texts[:] = [result.texts[k] for k in kept]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Source ids of each line, cut to `max_source`. Raises TypeError for a string."""
        lines = check_lines(lines)
        if self.tokenizer.columns.plain and not self._told and any("\t" in line for line in lines):
            self._told = True
            log.warning(
                "there are tabs in the input: this model reads one text a line, so a tab is a space"
            )
        rows = self.tokenizer.encode_source(list(lines))
        for i, row in enumerate(rows):
            if len(row) > self.max_source:
                shown = lines[i][:40]
                log.warning(
                    '"%s …" has %s tokens: only the first %s are read',
                    shown,
                    len(row),
                    self.max_source,
                )
                rows[i] = self.tokenizer.columns.shortened(row, self.max_source)
        strange = [
            i for i, row in enumerate(rows) if len(row) and 2 * row.count(UNK) >= len(row)
        ]  # a word may be ▁ and <unk>
        if strange:
            log.warning(
                '%s of %s lines are mostly unknown to the vocabulary ("%s"): is this the language of the model (%s)?',
                f"{len(strange):,}", f"{len(lines):,}", lines[strange[0]][:40], self.languages[0],
            )  # fmt: skip
        return rows

    def force(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        attention: bool = True,
        progress: ProgressCallback = _nothing,
    ) -> list[ForcedDecoding]:
        """Probabilities and attention of given translations, by one teacher-forced pass. An empty source or target
        counts as </s>."""
        order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i])))
        results: list[ForcedDecoding | None] = [None] * len(sources)
        batches, batch = [], list[int]()
        for i in order:
            longest = max([len(targets[i]), *(length_of(sources[j]) for j in (i, *batch))]) + 1
            if batch and longest * (len(batch) + 1) > FORCED_TOKENS:
                batches.append(batch)
                batch = []
            batch.append(i)
        batches += [batch] if batch else []

        def force(batch: list[int]) -> list[ForcedDecoding]:
            given = [sources[i] for i in batch]
            with torch.inference_mode():
                return self.networks.force(
                    self.networks.memories(given), given, [targets[i] for i in batch], attention
                )

        for i, one in self._each(force, batches, "scoring", progress):
            results[i] = one
        return results  # type: ignore[return-value]

    def _each(
        self,
        do: Callable[[list[int]], list[Found]],
        batches: Sequence[list[int]],
        what: str,
        progress: ProgressCallback,
    ) -> Iterator[tuple[int, Found]]:
        """What `do` finds for every line of the batches, with the line's number, as it is found; `what` is being done."""
        with Progress(what, sum(map(len, batches)), "lines") as step:
            for batch, found in zip(
                batches, parallel_map(do, batches, self.networks.device), strict=True
            ):
                yield from zip(batch, found, strict=True)
                step(len(batch))
                progress(len(batch))

    def attention(
        self, text: str, translation: str | None = None, units: Units = "word"
    ) -> AttentionMap:
        """Where the model looks while it writes the translation of a text: its own, or a given one. Raises UserError if it
        has no attention, or the text no words."""
        if not self.attends:
            raise UserError("this model has no attention to show (decoder=fixed)")
        if units not in get_args(Units):
            raise UserError(f"units={units}: choose {', '.join(get_args(Units))}")
        check_lines([text] if translation is None else [text, translation])
        if translation is None:
            found = self.attention_maps(
                [text], [self.translations(text, details_of=1)], units=units
            )
        else:
            found = self.forced_maps([text], [translation], units)
        if not found:
            raise UserError("attention: there are no words in the text")
        return found[0]

    def attention_maps(
        self,
        lines: Sequence[str],
        translations: Sequence[Translation],
        name: str = "",
        beside: Mapping[str, Translator] | None = None,
        units: Units = "word",
    ) -> list[AttentionMap]:
        """The attention of this model, called `name`, in its translations (made with details_of=1), and of each model in
        `beside` when it is forced to produce the same translations; each of several heads separately. Models without
        attention and lines without a translation are left out.

        Raises UserError if the units are pieces, and a model has others."""
        pairs = [
            (line, found)
            for line, found in zip(lines, translations, strict=True)
            if found.hypotheses
        ]
        shown, texts = [line for line, _ in pairs], [found.text for _, found in pairs]
        own = [(found.source, found.hypotheses[0].tokens) for _, found in pairs]
        seen = empty(self.tokenizer, shown, texts, own, units)
        add(
            seen,
            name,
            self.tokenizer,
            shown,
            texts,
            own,
            [found.details[0] for _, found in pairs],
            units,
        )
        for other_name, other in (beside or {}).items():
            if units == "piece" and other.tokenizer.models != self.tokenizer.models:
                raise UserError(
                    f"units=piece: {other_name} cuts texts into other pieces; use units=word"
                )
            ids, forced = other._forced(shown, texts)
            add(seen, other_name, other.tokenizer, shown, texts, ids, forced, units)
        return seen

    def forced_maps(
        self,
        lines: Sequence[str],
        texts: Sequence[str],
        units: Units = "word",
        progress: ProgressCallback = _nothing,
    ) -> list[AttentionMap]:
        """The attention of this model when it is forced to write given texts."""
        ids, forced = self._forced(lines, texts, progress)
        seen = empty(self.tokenizer, lines, texts, ids, units)
        add(seen, "", self.tokenizer, lines, texts, ids, forced, units)
        return seen

    def _forced(
        self, lines: Sequence[str], texts: Sequence[str], progress: ProgressCallback = _nothing
    ) -> tuple[list[tuple[list[int], list[int]]], list[ForcedDecoding]]:
        """Ids of both sides, and the probabilities and attention of the texts."""
        ids = list(zip(self.encode(lines), self.tokenizer.encode_target(list(texts)), strict=True))
        return ids, self.force(
            [source for source, _ in ids], [target for _, target in ids], progress=progress
        )

    def __repr__(self) -> str:
        names = " + ".join(type(model.decoder).__name__ for model in self.models)
        (source, target), precision = self.languages, self.networks.packs.precision
        return f"Translator({source} → {target}, {names}, {type(self.search).__name__.lower()}, {precision})"

    def request(self, source: Sequence[int]) -> Request:
        """What is asked of the search for an encoded line."""
        limit = int(self.max_length_factor * length_of(source)) + self.max_length_offset
        seed = zlib.crc32(
            picture_of(source).encode(), zlib.crc32(np.asarray(source, np.int64).tobytes())
        )
        return Request(max_length=limit, seed=seed)

    @torch.inference_mode()
    def _translate(
        self, sources: list[list[int]], requests: list[Request], details_of: int
    ) -> list[Translation]:
        memories = self.networks.memories(sources)
        with self.networks.generating():
            step, state = self.networks.first_step(memories)
            if any(request.constrained for request in requests):
                constrained = Constrained(step, requests)
                step, state = constrained, constrained.initial_state(state)
            found = self._written(self.search(step, state, requests))
        places = [i for i, (hypotheses, _) in enumerate(found) for _ in hypotheses[:details_of]]
        given = [h.tokens for hypotheses, _ in found for h in hypotheses[:details_of]]
        details, each = (
            list[ForcedDecoding](),
            max(1, FORCED_TOKENS // max([1, *map(length_of, sources), *map(len, given)])),
        )
        for start in range(0, len(places), each):
            rows = places[start : start + each]
            chosen = [
                memory.select(torch.tensor(rows, device=self.networks.device))
                for memory in memories
            ]
            details += self.networks.force(
                chosen, [sources[i] for i in rows], given[start : start + each], True
            )
        own = iter(details)
        return [
            Translation(source, hypotheses, texts, [next(own) for _ in hypotheses[:details_of]])
            for source, (hypotheses, texts) in zip(sources, found, strict=True)
        ]

    def _written(self, found: list[list[Hypothesis]]) -> list[tuple[list[Hypothesis], list[str]]]:
        """The hypotheses of each sentence and their texts, chosen by their texts if the search does so."""
        texts = iter(self.tokenizer.decode([h.tokens for hypotheses in found for h in hypotheses]))
        written = [(hypotheses, [next(texts) for _ in hypotheses]) for hypotheses in found]
        if not isinstance(self.search, Reranker):
            return [_distinct(*each) for each in written] if self._ranks else written
        ranked = [self.search.rerank(*each) if each[0] else [] for each in written]
        return [([h for h, _ in each], [text for _, text in each]) for each in ranked]

    def _batches(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        order = sorted(
            (i for i, source in enumerate(sources) if source), key=lambda i: -length_of(sources[i])
        )
        batch: list[int] = []
        for i in order:  # the first of a batch is its longest
            if batch and (length_of(sources[batch[0]]) + 1) * (len(batch) + 1) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch


def _first_of_each(texts: Sequence[str]) -> list[int]:
    """Where each text stands first."""
    return sorted({text: i for i, text in reversed([*enumerate(texts)])}.values())


def _distinct(
    hypotheses: Sequence[Hypothesis], texts: Sequence[str]
) -> tuple[list[Hypothesis], list[str]]:
    """Without what has the text of a better one: other pieces may spell the same."""
    first = _first_of_each(texts)
    return [hypotheses[i] for i in first], [texts[i] for i in first]
