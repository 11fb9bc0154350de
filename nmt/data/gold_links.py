"""Files of word alignments by human annotators, or by another tool.

A line has the links of a pair in the Pharaoh format (0-0 sure, 0?0 possible) or in JSON. Or it is
one link in the format of the shared tasks of 2003 and 2005 (NAACL).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.data.lines import find_file, read_lines
from nmt.data.links import Links, parse_links
from nmt.foundation.errors import UserError

NAACL_LINK = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})(?:\s+([SP]))?(?:\s+[\d.]+)?\s*")
"""Format of the shared tasks of 2003 and 2005: pair, source and target word, S or P, confidence."""


@dataclass(frozen=True)
class GoldLinks:
    """Links of a sentence pair by human annotators; every sure link counts as possible."""

    sure: Links
    possible: Links


def read_gold_links(key: str, name: str, source: Path, count: int) -> list[GoldLinks]:
    """Links of each pair of a file. Raises UserError for a line with anything else.

    key: setting that names the file
    name: the file, in Pharaoh's, NAACL's or JSON's form
    source: file with the source sentences, for messages
    count: number of pairs
    """
    file = find_file(name)
    lines = read_lines(file)
    if lines and all(NAACL_LINK.fullmatch(line) for line in lines if line.strip()):
        return _naacl_gold(lines, file, count)
    if len(lines) != count:
        raise UserError(
            f"{key}={file}: has {len(lines):,} lines, {source} has {count:,}; expected links such "
            'as 0-0 1?2 or JSON with lists "sure" and "possible" in one line per pair, or a link '
            "per line, `pair source target S`, from 1"
        )
    gold = []
    for number, line in enumerate(lines, 1):
        try:
            parse = _json_links if line.lstrip().startswith("{") else parse_links
            gold.append(GoldLinks(*parse(line)))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file}, line {number:,}: {error}") from error
    return gold


def _json_links(line: str) -> tuple[Links, Links]:
    """Sure and possible links of {"sure": [[0, 1]], "possible": [[0, 2]]} or {"pairs": [[0, 1]]}.

    Raises ValueError for anything else.
    """
    links_of = {}
    values = json.loads(line)
    for key in ("sure", "pairs", "possible"):
        links = values.get(key, [])
        if not (isinstance(links, list) and all(map(_is_link, links))):
            raise ValueError(f'"{key}" is not a list of links such as [[0, 1]]')
        links_of[key] = frozenset((s, t) for s, t in links)
    if not values.keys() & links_of.keys():
        raise ValueError('there is neither "sure" nor "possible" nor "pairs" in it')
    return links_of["sure"] | links_of["pairs"], links_of["possible"]


def _is_link(link: Any) -> bool:
    is_pair = isinstance(link, list) and len(link) == 2
    return is_pair and all(type(word) is int and word >= 0 for word in link)


def _naacl_gold(lines: Sequence[str], file: Path, count: int) -> list[GoldLinks]:
    """Gold links of each pair from lines of single links, all numbers from 1."""
    sure: list[set[tuple[int, int]]] = [set() for _ in range(count)]
    possible: list[set[tuple[int, int]]] = [set() for _ in range(count)]
    for number, line in enumerate(lines, 1):
        fields = NAACL_LINK.fullmatch(line)
        if fields is None:
            continue  # an empty line
        pair = int(fields[1])
        source_word = int(fields[2])
        target_word = int(fields[3])
        if not 1 <= pair <= count:
            raise UserError(f"{file}, line {number:,}: pair {pair}, but there are {count:,} pairs")
        if source_word and target_word:  # 0 is a word without a link
            links = possible if fields[4] == "P" else sure
            links[pair - 1].add((source_word - 1, target_word - 1))
    return [GoldLinks(frozenset(s), frozenset(p)) for s, p in zip(sure, possible, strict=True)]
