"""Word alignments in text files: links of sentence pairs, and gold alignments.

The Pharaoh format (0-0 sure, 0?0 possible) and JSON have one sentence pair per line. The NAACL
format of the shared tasks of 2003 and 2005 has one link per line. Words are counted from 0 in
Pharaoh and JSON, from 1 in NAACL.
"""

import collections
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.data.lines import find_file, read_lines
from nmt.foundation.errors import UserError

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
    """Returns alignment links as a line in the Pharaoh format (0-0 1-2), sorted by source word."""
    return " ".join(f"{s}-{t}" for s, t in sorted(links))


NAACL_LINK = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})(?:\s+([SP]))?(?:\s+[\d.]+)?\s*")
"""Pattern of a NAACL line: pair, source word, target word, S (sure) or P (possible), confidence."""


@dataclass(frozen=True)
class GoldLinks:
    """Gold alignment links of a sentence pair.

    sure: sure links; each also counts as possible
    possible: possible links
    """

    sure: Links
    possible: Links


def read_gold_links(key: str, name: str, source: object, count: int) -> list[GoldLinks]:
    """Reads the gold links of each sentence pair.

    key: setting that names the file, for messages
    name: file in Pharaoh, NAACL or JSON format
    source: file of the source sentences, for messages
    count: number of sentence pairs

    Raises UserError if a line is invalid.
    """
    file = find_file(name, f"{key}={name}")
    lines = read_lines(file)
    written = [line for line in lines if line.strip()]
    if written and all(map(NAACL_LINK.fullmatch, written)):
        return _naacl_gold(lines, file, count)
    if len(lines) != count:
        raise UserError(
            f"{key}={file}: has {len(lines):,} lines, but {source} has {count:,}. Expected "
            "one line per sentence pair, such as 0-0 1?2 (sure and possible links, words counted "
            'from 0) or {"sure": [[0, 0]], "possible": [[1, 2]]}, or one line per link, such as '
            "1 1 1 S (sentence pair, source word and target word, counted from 1; S for sure, P "
            "for possible)"
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
    """Returns sure and possible links of a JSON line.

    The formats are {"sure": [[0, 1]], "possible": [[0, 2]]} and {"pairs": [[0, 1]]}.

    Raises ValueError for any other format.
    """
    links_of = {}
    values = json.loads(line)
    for key in ("sure", "pairs", "possible"):
        links = values.get(key, [])
        if not (isinstance(links, list) and all(map(_is_link, links))):
            raise ValueError(f'"{key}" is not a list of links such as [[0, 1]]')
        links_of[key] = frozenset((s, t) for s, t in links)
    if not values.keys() & links_of.keys():
        raise ValueError('expected a JSON object with a key "sure", "possible" or "pairs"')
    return links_of["sure"] | links_of["pairs"], links_of["possible"]


def _is_link(link: Any) -> bool:
    is_pair = isinstance(link, list) and len(link) == 2
    return is_pair and all(type(word) is int and word >= 0 for word in link)


def _naacl_gold(lines: Sequence[str], file: Path, count: int) -> list[GoldLinks]:
    """Returns the gold links of each pair from lines in the NAACL format."""
    # The key is the pair, and whether the links are only possible.
    links = collections.defaultdict[tuple[int, bool], set[tuple[int, int]]](set)
    for number, line in enumerate(lines, 1):
        fields = NAACL_LINK.fullmatch(line)
        if fields is None:
            continue  # empty lines are skipped
        pair = int(fields[1])
        source_word = int(fields[2])
        target_word = int(fields[3])
        if not 1 <= pair <= count:
            raise UserError(
                f"{file}, line {number:,}: sentence pair {pair} not found; the source file has "
                f"{count:,} sentences"
            )
        if source_word and target_word:  # 0 marks a word without a link
            links[pair, fields[4] == "P"].add((source_word - 1, target_word - 1))
    return [
        GoldLinks(sure=frozenset(links[pair, False]), possible=frozenset(links[pair, True]))
        for pair in range(1, count + 1)
    ]
