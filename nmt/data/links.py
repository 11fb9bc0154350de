"""Alignments of words: links between a word of the source and a word of the target, counted from 0 (Pharaoh format)."""

from __future__ import annotations

import re

from nmt.data import Pairs
from nmt.foundation.errors import UserError

Links = frozenset[tuple[int, int]]
"""(source word, target word), counted from 0."""


def parse_links(line: str) -> tuple[Links, Links]:
    """Sure links, written 0-0, and possible ones, written 0?0 or 0p0. Raises ValueError for anything else."""
    sure, possible = set[tuple[int, int]](), set[tuple[int, int]]()
    for word in line.split():
        match = re.fullmatch(r"(\d{1,9})([-?p])(\d{1,9})", word)
        if match is None:
            raise ValueError(f'"{word}" is not a link such as 0-1 (sure) or 0?1 (possible)')
        (sure if match[2] == "-" else possible).add((int(match[1]), int(match[3])))
    return frozenset(sure), frozenset(possible)


def write_links(links: Links) -> str:
    """Pharaoh format, sorted by source word."""
    return " ".join(f"{s}-{t}" for s, t in sorted(links))


def check_links(pairs: Pairs, place: str, factors: int, first: int = 1) -> None:
    """Raises UserError with the number of the line, after `place`, where links are not links, or lead to words that are not
    there. `factors`: columns of the source that are no text; `first`: the number of the first line."""
    assert pairs.links is not None
    rows = zip(pairs.source, pairs.target, pairs.links, strict=True)
    for number, (source, target, line) in enumerate(rows, first):
        sizes = len((source.split("\t")[0] if factors else source).split()), len(target.split())
        try:
            links = frozenset[tuple[int, int]]().union(*parse_links(line))
        except ValueError as error:
            raise UserError(f"{place} {number:,}: {error}") from error
        for s, t in links:
            if s >= sizes[0] or t >= sizes[1]:
                raise UserError(
                    f"{place} {number:,}: the link {s}-{t} leads nowhere: the source has {sizes[0]} words between "
                    f"spaces, the target {sizes[1]}, counted from 0"
                )
