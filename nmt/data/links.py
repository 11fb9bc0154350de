"""Parses and writes word alignments in the Pharaoh format, with words counted from 0."""

import re

Links = frozenset[tuple[int, int]]
"""Set of alignment links, each a pair of a source and a target word index, counted from 0."""


def parse_links(line: str) -> tuple[Links, Links]:
    """Returns the sure links (written 0-0) and the possible links (written 0?0 or 0p0) of a line.

    Raises ValueError if a link is invalid.
    """
    # The key is True for sure links.
    links: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    for word in line.split():
        match = re.fullmatch(r"(\d{1,9})([-?p])(\d{1,9})", word)
        if match is None:
            raise ValueError(f'"{word}" is not a link such as 0-1 (sure) or 0?1 (possible)')
        links[match[2] == "-"].add((int(match[1]), int(match[3])))
    return frozenset(links[True]), frozenset(links[False])


def write_links(links: Links) -> str:
    """Returns links in the Pharaoh format, sorted by source word."""
    return " ".join(f"{s}-{t}" for s, t in sorted(links))
