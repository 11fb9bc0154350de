"""python -m nmt.align model=RUN_DIR source=FILE target=FILE [reverse=RUN_DIR symmetrize=grow_diag] [gold=FILE]

Word alignments of given sentence pairs, one line per pair. Each target word is linked to the source word that it
attends to most. With reverse=, a model of the other direction, the alignments of both directions are combined into one.
With vectors=[SOURCE,TARGET], two files of word vectors in one space, no trained model is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import AlignSettings


def run(settings: AlignSettings) -> float | None:
    """Aligns all pairs; returns the alignment error rate if there is a gold standard."""
    import json
    import logging

    from nmt.configuration.fingerprint import fingerprint
    from nmt.data.text import check_aligned, find_file, read_lines
    from nmt.foundation.errors import UserError
    from nmt.inference.streams import Sink
    from nmt.inference.word_alignment import error_rate, parse_links, symmetrize, write_links

    split = _split(settings)
    files = [find_file(settings.source), find_file(settings.target)]
    source, target = (read_lines(file) for file in files)
    check_aligned(files[0], len(source), files[1], len(target))
    gold = []
    if settings.gold:
        file = find_file(settings.gold)
        lines = read_lines(file)
        check_aligned(files[0], len(source), file, len(lines))
        for number, line in enumerate(lines, 1):
            try:
                gold.append(parse_links(line))
            except ValueError as error:
                raise UserError(f"{file}, line {number:,}: {error}") from error
    if settings.vectors:
        forward = _by_vectors(settings.vectors, source, target, split)
        backward = [
            frozenset((s, t) for t, s in links) for links in _by_vectors(settings.vectors[::-1], target, source, split)
        ]
    else:
        forward = _by_attention(settings, None, source, target)
        backward = []
        if settings.reverse:
            found = _by_attention(settings, settings.reverse, target, source)
            backward = [frozenset((s, t) for t, s in links) for links in found]
    links = forward
    if backward:
        links = [symmetrize(f, b, settings.symmetrize) for f, b in zip(forward, backward, strict=True)]
    with Sink(settings.output, resume=None, work=fingerprint(settings)) as write:
        if settings.format == "json":
            rows = zip(source, target, links, strict=True)
            write([json.dumps({"source": s, "target": t, "pairs": sorted(a)}, ensure_ascii=False) for s, t, a in rows])
        else:
            write([write_links(each) for each in links])
    if not gold:
        return None
    outside = sum(
        s >= len(split(source_line)) or t >= len(split(target_line))
        for source_line, target_line, (sure, possible) in zip(source, target, gold, strict=True)
        for s, t in sure | possible
    )
    if outside:
        logging.getLogger("nmt.align").warning(
            "%s: %s links to words that are not in their lines (words are counted from 0)",
            settings.gold,
            f"{outside:,}",
        )
    rate = error_rate(links, [sure for sure, _ in gold], [possible for _, possible in gold])
    logging.getLogger("nmt.align").info("alignment error rate %.4f over %s pairs", rate, f"{len(links):,}")
    return rate


def _by_attention(
    settings: AlignSettings, model: str | list[str] | None, source: Sequence[str], target: Sequence[str]
) -> list[frozenset[tuple[int, int]]]:
    from nmt.configuration.loading import translator_for
    from nmt.foundation.errors import UserError
    from nmt.inference.word_alignment import merge

    translator = translator_for(settings, model)
    if not translator.attends:
        raise UserError(f"model={model or settings.model}: has no attention to align by (decoder=fixed)")
    tokenizer, split = translator.tokenizer, _split(settings)
    sources, targets = translator.encode(source), tokenizer.encode_target(list(target))
    links = []
    for s, t, s_ids, t_ids, forced in zip(
        source, target, sources, targets, translator.force(sources, targets), strict=True
    ):
        assert forced.weights is not None
        both = tokenizer.source_words(s, s_ids, split), tokenizer.target_words(t, t_ids, split)
        links.append(frozenset(merge(forced.weights, *both).pairs()))
    return links


def _split(settings: AlignSettings) -> Callable[[str], list[str]]:
    from nmt.tokenizer.words import words

    return words if settings.units == "word" else str.split


def _by_vectors(
    files: Sequence[str], source: Sequence[str], target: Sequence[str], split: Callable[[str], list[str]]
) -> list[frozenset[tuple[int, int]]]:
    """Links each target word that has a vector to the source word with the nearest vector."""
    import numpy as np

    from nmt.corpus.word_vectors import nearest, read_vectors
    from nmt.foundation.errors import UserError

    sides = [
        read_vectors(file, {form for line in lines for word in split(line) for form in (word, word.lower())})
        for file, lines in zip(files, (source, target), strict=True)
    ]
    sizes = {len(vector) for side in sides for vector in side.values()}
    if len(sizes) != 1:
        raise UserError(f"vectors: {files[0]} and {files[1]} need vectors of one size (sizes found: {sorted(sizes)})")
    zeros = np.zeros(sizes.pop(), np.float32)

    def matrix(line: str, side: dict[str, np.ndarray]) -> np.ndarray:
        return np.array([side.get(word, side.get(word.lower(), zeros)) for word in split(line)])

    links = []
    for s, t in zip(source, target, strict=True):
        known, asked = matrix(s, sides[0]), matrix(t, sides[1])
        if not len(known) or not len(asked):
            links.append(frozenset[tuple[int, int]]())
            continue
        best = nearest(known, asked).argmax(1)
        links.append(frozenset((int(i), j) for j, i in enumerate(best) if asked[j].any() and known[i].any()))
    return links


main = command_line("align", run)

if __name__ == "__main__":
    main()
