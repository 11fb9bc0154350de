"""Word alignment of the sentence pairs of two files, and comparison with a gold standard."""

import itertools
import json
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nmt.data.lines import batched, read_aligned
from nmt.data.links import GoldLinks, Links, read_gold_links, write_links
from nmt.drawing.attention_map import AttentionMap, write_map
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.foundation.ranks import Ranks
from nmt.inference.alignment_weights import Attend
from nmt.inference.input_lines import CHUNK
from nmt.inference.parallel import ProgressCallback, no_progress
from nmt.inference.shared_output import NEEDS_ONE_OUTPUT, in_parts, sink_of
from nmt.inference.text_input import count_aligned, find_input
from nmt.inference.word_alignment import (
    Symmetrization,
    alignment_scores,
    count_links,
    strongest_links,
    symmetrize,
)

log = logging.getLogger(__name__)
OUTSIDE = (
    "%s: %s alignment links refer to words after the end of their line; words are numbered from 0"
)


@dataclass(frozen=True)
class AlignedPair:
    """Sentence pair to align.

    source: source sentence
    target: target sentence
    gold: gold links of the pair; None without a gold standard
    """

    source: str
    target: str
    gold: GoldLinks | None


@dataclass(frozen=True)
class Aligner:
    """Aligner of sentence pairs in one or both directions.

    forward: function that computes alignment weights from source to target
    backward: function that computes alignment weights from target to source; None aligns in one
        direction only
    symmetrization: combination of the links of both directions
    needs_all: setting, such as method=hmm, with which the functions need all sentence pairs at
        once; None if the pairs can be aligned in chunks
    source_check: function that returns another function, which raises UserError for a source line
        that the aligner cannot read
    """

    forward: Attend
    backward: Attend | None
    symmetrization: Symmetrization
    needs_all: str | None = None
    source_check: Callable[[], Callable[[str], object]] = lambda: str

    def links(
        self, pairs: Sequence[AlignedPair], progress: ProgressCallback
    ) -> tuple[list[Links], list[AttentionMap]]:
        """Returns the links and the forward attention map of each pair.

        pairs: sentence pairs
        progress: progress callback of the forward direction
        """
        sources = [pair.source for pair in pairs]
        targets = [pair.target for pair in pairs]
        maps = list(self.forward(sources, targets, progress))
        links = list(map(word_links, maps))
        if self.backward is not None:
            for i, reverse_map in enumerate(self.backward(targets, sources, no_progress)):
                backward = frozenset((s, t) for t, s in word_links(reverse_map))
                links[i] = symmetrize(links[i], backward, self.symmetrization)
        return links, maps


def align_files(
    aligner: Aligner,
    *,
    ranks: Ranks,
    source: str,
    target: str,
    gold: str | None,
    output: str | None,
    work: Mapping[str, str],
    format: Literal["pharaoh", "json"],
    attention_map: str | None,
) -> float | None:
    """Writes the alignment links of each sentence pair.

    Returns the alignment error rate, 0 to 1; None without a gold standard.

    aligner: aligner of the sentence pairs
    ranks: processes (ranks) that share the work
    source, target: files of source and target sentences, one per line
    gold: file of gold links; None without a gold standard
    output: output file; None writes to stdout
    work: names and hashes of everything that the output depends on
    format: `pharaoh` (source-target pairs) or `json`
    attention_map: file for a plot of the forward attention; None writes no plot

    Raises UserError if the files differ in their number of lines, or if the output cannot be
    divided into parts.
    """
    for setting in (aligner.needs_all, attention_map and f"attention_map={attention_map}"):
        if setting and in_parts(ranks, output):
            raise UserError(f"{setting}: {NEEDS_ONE_OUTPUT}")
    texts = find_input(source), find_input(target)
    count = count_aligned(*texts)
    texts[0].require(aligner.source_check())
    gold_links = read_gold_links("gold", gold, texts[0], count) if gold else []
    lines = [text.lines() for text in texts]
    pairs = map(AlignedPair, *lines, gold_links or itertools.repeat(None))
    drawn: list[AttentionMap] = []
    step = Progress("aligning", count // ranks.count, "pairs")
    with sink_of(ranks, output, count, work=work) as sink, step:
        for chunk in sink.own(batched(pairs, count if aligner.needs_all else CHUNK)):
            links, maps = aligner.links(chunk, step)
            sink.write([_line(*row, format) for row in zip(chunk, links, strict=True)])
            if gold_links:
                sink.add(*_gold_counts(chunk, links, maps))
            drawn += maps if attention_map else []
    if attention_map:
        write_map(drawn, Path(attention_map))
    return _error_rate(sink.sums, count, gold) if gold_links else None


def _gold_counts(
    pairs: Sequence[AlignedPair], links: Sequence[Links], maps: Sequence[AttentionMap]
) -> list[int]:
    """Returns the counts from which `_error_rate` computes scores and warnings."""
    reference = [pair.gold for pair in pairs if pair.gold]
    # Numbers of source and target words, in the attention map and between spaces
    lengths = [(len(one.source) - one.ends, len(one.target) - one.ends) for one in maps]
    by_space = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs]
    outside = sum(map(_count_outside, reference, lengths))
    divided = sum(map(operator.ne, lengths, by_space))
    return [divided, outside, *count_links(links, reference)]


def _line(pair: AlignedPair, links: Links, format: Literal["pharaoh", "json"]) -> str:
    """Returns the output line with the alignment links of a sentence pair."""
    if format == "pharaoh":
        return write_links(links)
    record = {"source": pair.source, "target": pair.target, "pairs": sorted(links)}
    return json.dumps(record, ensure_ascii=False)


def _error_rate(sums: Sequence[float], pairs: int, gold: str | None) -> float:
    """Logs the alignment scores, and returns the alignment error rate.

    sums: list of six counts: sentence pairs with other words than those between spaces, gold links
        with a word index beyond the end of the sentence, and the four link counts that
        `alignment_scores` receives
    pairs: number of sentence pairs
    gold: file of gold links
    """
    divided, outside = map(int, sums[:2])
    scores = alignment_scores(*map(int, sums[2:]))
    log.info(
        "precision %.4f, recall %.4f, alignment error rate %.4f on %s sentence pairs",
        *scores,
        f"{pairs:,}",
    )
    if outside:
        log.warning(OUTSIDE, gold, f"{outside:,}")
    if divided:
        log.warning(
            "%s: the aligned units of %s sentence pairs are not the words between spaces; if the "
            "gold links number words between spaces, set units=space",
            gold,
            f"{divided:,}",
        )
    return scores.error_rate


def compare_files(links: str, gold: str, *, source: str, target: str) -> float:
    """Returns the alignment error rate of links from another tool, 0 to 1.

    links: file of predicted links in Pharaoh, NAACL or JSON format
    gold: file of gold links in Pharaoh, NAACL or JSON format
    source, target: files with the source and target sentences

    Raises UserError if the files differ in their number of lines.
    """
    texts = read_aligned(source, target)
    lengths = [(len(s.split()), len(t.split())) for s, t in zip(*texts, strict=True)]
    predicted = read_gold_links("links", links, source, len(lengths))
    reference = read_gold_links("gold", gold, source, len(lengths))
    for name, pairs in ((links, predicted), (gold, reference)):
        outside = sum(map(_count_outside, pairs, lengths))
        if outside:
            log.warning(OUTSIDE, name, f"{outside:,}")
    counts = count_links([pair.sure | pair.possible for pair in predicted], reference)
    return _error_rate([0, 0, *counts], len(lengths), gold)


def word_links(weights: AttentionMap) -> Links:
    """Returns one link per target word, to the source word with the greatest weight; `</s>` is
    excluded."""
    end = -1 if weights.ends else None
    return strongest_links(weights.total[:end, :end])


def _count_outside(links: GoldLinks, lengths: tuple[int, int]) -> int:
    """Returns the number of links with a word index beyond the end of the sentence.

    lengths: numbers of source and target words
    """
    source_size, target_size = lengths
    return sum(s >= source_size or t >= target_size for s, t in links.sure | links.possible)
