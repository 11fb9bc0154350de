"""python -m nmt.align model=RUN_DIR source=FILE target=FILE [reverse=RUN_DIR symmetrize=grow_diag] [gold=FILE]

Word alignments of given sentence pairs, one line per pair. Each target word is linked to the source word that it
attends to most. With reverse=, a model of the other direction, the alignments of both directions are combined into one.
With vectors=[SOURCE,TARGET], two files of word vectors in one space, no trained model is needed. attention_map= draws the
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from pathlib import Path

    from nmt.configuration.model_settings import AlignSettings
    from nmt.data.links import Links
    from nmt.drawing.attention_map import AttentionMap


def run(settings: AlignSettings) -> float | None:
    """Aligns all pairs; returns the alignment error rate if there is a gold standard."""
    import json
    import logging
    from pathlib import Path

    from nmt.data.lines import check_aligned, find_file, read_lines
    from nmt.data.links import Links, write_links
    from nmt.drawing.attention_map import AttentionMap, write_map
    from nmt.inference.output_sinks import open_sink
    from nmt.inference.word_alignment import error_rate, symmetrize
    from nmt.pipeline.fingerprint import fingerprint

    files = [find_file(settings.source), find_file(settings.target)]
    source, target = (read_lines(file) for file in files)
    check_aligned(files[0], len(source), files[1], len(target))
    gold = _gold(settings.gold, files[0], len(source)) if settings.gold else []
    forward, backward, sizes = list[Links](), list[Links](), list[tuple[int, int]]()
    maps = list[AttentionMap]()
    for seen in _looks(settings, source, target):
        forward.append(_strongest(seen))
        sizes.append((len(seen.source) - seen.ends, len(seen.target) - seen.ends))
        maps += [seen] if settings.attention_map else []
    if settings.vectors or settings.reverse:
        looks = _looks(settings, target, source, backward=True)
        backward = [frozenset((s, t) for t, s in _strongest(seen)) for seen in looks]
    links = forward
    if backward:
        links = [
            symmetrize(f, b, settings.symmetrize) for f, b in zip(forward, backward, strict=True)
        ]
    with open_sink(settings.output, work=fingerprint(settings)) as sink:
        if settings.format == "json":
            rows = zip(source, target, links, strict=True)
            sink.write(
                [
                    json.dumps({"source": s, "target": t, "pairs": sorted(a)}, ensure_ascii=False)
                    for s, t, a in rows
                ]
            )
        else:
            sink.write([write_links(each) for each in links])
    if settings.attention_map:
        write_map(maps, Path(settings.attention_map))
    if not gold:
        return None
    _tell_outside(str(settings.gold), gold, sizes)
    rate = error_rate(links, [sure for sure, _ in gold], [possible for _, possible in gold])
    logging.getLogger("nmt.align").info(
        "alignment error rate %.4f over %s pairs", rate, f"{len(links):,}"
    )
    return rate


def _gold(name: str, beside: Path, count: int) -> list[tuple[Links, Links]]:
    """Sure and possible links of each pair. Raises UserError for a line that holds anything else."""
    from nmt.data.lines import check_aligned, find_file, read_lines
    from nmt.data.links import parse_links
    from nmt.foundation.errors import UserError

    file, found = find_file(name), []
    lines = read_lines(file)
    check_aligned(beside, count, file, len(lines))
    for number, line in enumerate(lines, 1):
        try:
            found.append(parse_links(line))
        except ValueError as error:
            raise UserError(f"{file}, line {number:,}: {error}") from error
    return found


def _tell_outside(
    name: str, gold: Sequence[tuple[Links, Links]], sizes: Sequence[tuple[int, int]]
) -> None:
    """A warning if links lead to words that are not there."""
    import logging

    outside = sum(
        s >= source_size or t >= target_size
        for (source_size, target_size), (sure, possible) in zip(sizes, gold, strict=True)
        for s, t in sure | possible
    )
    if outside:
        what = "links to words that are not in their lines (words are counted from 0)"
        logging.getLogger("nmt.align").warning("%s: %s %s", name, f"{outside:,}", what)


def _looks(
    settings: AlignSettings, source: Sequence[str], target: Sequence[str], backward: bool = False
) -> Iterator[AttentionMap]:
    """What each pair's target words attend to; `backward`: the source is the model's target."""
    from nmt.tokenizer.words import SPLITS

    if settings.vectors:
        split = SPLITS[settings.units]
        return _by_vectors(
            settings.vectors[::-1] if backward else settings.vectors, source, target, split
        )
    return _by_attention(settings, settings.reverse if backward else None, source, target)


def _strongest(seen: AttentionMap) -> Links:
    """Each target word with the source word of the greatest weight, if it has any; </s> left out."""
    end = -1 if seen.ends else None
    weights = seen.total[:end, :end]
    return frozenset((int(row.argmax()), t) for t, row in enumerate(weights) if row.any())


def _by_attention(
    settings: AlignSettings,
    model: str | list[str] | None,
    source: Sequence[str],
    target: Sequence[str],
) -> Iterator[AttentionMap]:
    """The attention of a model that is forced to write the targets."""
    from nmt.foundation.errors import UserError
    from nmt.foundation.progress import Progress
    from nmt.inference.input_lines import CHUNK
    from nmt.loading import translator_for

    translator = translator_for(settings, model)
    if not translator.attends:
        raise UserError(
            f"model={model or settings.model}: has no attention to align by (decoder=fixed)"
        )
    if not translator.tokenizer.columns.sources:
        raise UserError(
            f"model={model or settings.model}: reads pictures, which have no words to align"
        )
    with Progress("aligning", len(source), "pairs") as step:
        for start in range(0, len(source), CHUNK):
            part = slice(start, start + CHUNK)
            yield from translator.forced_maps(source[part], target[part], settings.units, step)


def _by_vectors(
    files: Sequence[str],
    source: Sequence[str],
    target: Sequence[str],
    split: Callable[[str], list[str]],
) -> Iterator[AttentionMap]:
    """The attention of word vectors, without training; 0 where a word has none."""
    import numpy as np

    from nmt.data.word_vectors import nearest, read_vectors
    from nmt.drawing.attention_map import AttentionMap
    from nmt.foundation.errors import UserError

    sides = [
        read_vectors(
            file, {form for line in lines for word in split(line) for form in (word, word.lower())}
        )
        for file, lines in zip(files, (source, target), strict=True)
    ]
    sizes = {len(vector) for side in sides for vector in side.values()}
    if len(sizes) != 1:
        raise UserError(
            f"vectors: {files[0]} and {files[1]} need vectors of one size (sizes found: {sorted(sizes)})"
        )
    zeros = np.zeros(sizes.pop(), np.float32)

    def matrix(words: list[str], side: dict[str, np.ndarray]) -> np.ndarray:
        return np.array([side.get(word, side.get(word.lower(), zeros)) for word in words]).reshape(
            -1, len(zeros)
        )

    for pair in zip(source, target, strict=True):
        words = split(pair[0]), split(pair[1])
        known, asked = (matrix(its, side) for its, side in zip(words, sides, strict=True))
        weights = np.zeros((len(asked), len(known)))
        have, ask = known.any(1), asked.any(1)
        if have.any() and ask.any():
            weights[np.ix_(ask, have)] = nearest(known[have], asked[ask])
        yield AttentionMap(*words, {"": weights}, ends=False)


main = command_line("align", run)

if __name__ == "__main__":
    main()
