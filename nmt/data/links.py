"""Word alignments: links between source and target words, counted from 0 (Pharaoh format)."""

import re

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
