"""Word alignments: links between source and target words, counted from 0 (Pharaoh format)."""

import re
from collections.abc import Iterator

from nmt.data import Pairs
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigError, RunView

Links = frozenset[tuple[int, int]]
"""Pairs of a source word and a target word, counted from 0."""


def parse_links(line: str) -> tuple[Links, Links]:
    """Sure links, written 0-0, and possible links, written 0?0 or 0p0.

    Raises ValueError for anything else.
    """
    links: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}  # by: is it sure?
    for word in line.split():
        match = re.fullmatch(r"(\d{1,9})([-?p])(\d{1,9})", word)
        if match is None:
            raise ValueError(f'"{word}" is not a link such as 0-1 (sure) or 0?1 (possible)')
        links[match[2] == "-"].add((int(match[1]), int(match[3])))
    return frozenset(links[True]), frozenset(links[False])


def write_links(links: Links) -> str:
    """Links in the Pharaoh format, sorted by source word."""
    return " ".join(f"{s}-{t}" for s, t in sorted(links))


def unread_links(run: RunView) -> Iterator[ConfigError]:
    """An error for alignments of the data that the objective does not read."""
    if run.value("data.alignment") and not run.value("objective.guided_alignment"):
        problem = "is read by objective.guided_alignment only: set that above 0"
        yield run.error("data.alignment", problem)


def check_links(pairs: Pairs, place: str, factors: int, first: int = 1) -> None:
    """Raises UserError for a line that is not a list of links, or whose links exceed its words.

    pairs: sentence pairs with links.
    place: file or column, in front of the line number in messages.
    factors: columns of the source that are not text.
    first: number of the first line.
    """
    assert pairs.links is not None
    rows = zip(pairs.source, pairs.target, pairs.links, strict=True)
    for number, (source, target, line) in enumerate(rows, first):
        text = source.split("\t")[0] if factors else source  # factors follow the text
        source_words = len(text.split())
        target_words = len(target.split())
        try:
            sure, possible = parse_links(line)
        except ValueError as error:
            raise UserError(f"{place} {number:,}: {error}") from error
        for s, t in sure | possible:
            if s >= source_words or t >= target_words:
                raise UserError(
                    f"{place} {number:,}: word of the link {s}-{t} not found: the source has "
                    f"{source_words} words between spaces, the target {target_words}, "
                    "counted from 0"
                )
