"""Translation memories (TMX). Columns are languages: en finds en, EN and en-US."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from nmt.data.formats import Rows
from nmt.data.lines import batched, open_file
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
CODES = ("bpt", "ept", "ph", "it", "ut")
"""Elements in a text that hold codes of another program, not text."""
PLACEHOLDERS = ("ph", "ut")
"""Codes that stand for something, such as a line break: they separate words."""
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
Variants = Mapping[str, Any]
"""Elements `tuv` of a translation unit by language."""


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The translation units that have all languages. Raises UserError if there is none."""
    languages = set[str]()
    units = 0
    count = 0

    def complete_units(opened: Any) -> Iterator[list[str | None]]:
        nonlocal units
        for variants in _units(opened):
            units += 1
            languages.update(variants)
            texts = [_text_in(variants, language) for language in columns]
            if None not in texts:
                yield texts

    try:
        with open_file(file) as opened:
            for chunk in batched(complete_units(opened)):
                cells = zip(*chunk, strict=True)
                values = dict(zip(columns, cells, strict=True))
                yield Rows(str(file), columns, values, first=count + 1)
                count += len(chunk)
    except UserError:
        raise
    except Exception as error:  # errors of the XML parser or of a decompressor
        raise UserError(f"{file}: cannot be read as TMX ({error})") from error
    asked = " and ".join(columns)
    if not count:
        available = ", ".join(sorted(languages)) or "none"
        raise UserError(f"{file}: no translation units with {asked}. It has: {available}")
    if count < units:
        missing = f"{units - count:,} of {units:,}"
        log.warning("%s: %s translation units lack %s", file, missing, asked)


def _units(opened: Any) -> Iterator[Variants]:
    """The first variant of each language, for each translation unit.

    An element is released as soon as its unit is complete.
    """
    body: Any = None
    for event, element in ElementTree.iterparse(opened, ("start", "end")):
        tag = element.tag.rpartition("}")[2]
        if tag == "body":
            body = element
        elif tag == "tu" and event == "end":
            variants = reversed(element.findall("{*}tuv"))
            yield {tuv.get(LANGUAGE) or tuv.get("lang") or "": tuv for tuv in variants}
            (element if body is None else body).clear()


def _text_in(variants: Variants, language: str) -> str | None:
    """The text of a translation unit in a language."""
    asked = _normalized(language)
    by_language = {_normalized(name): tuv for name, tuv in variants.items()}
    regional = (tuv for name, tuv in by_language.items() if name.partition("-")[0] == asked)
    tuv = by_language.get(asked, next(regional, None))
    segment = None if tuv is None else tuv.find("{*}seg")
    if segment is None:
        return None
    text = re.sub(r"(?<=\w)\0+(?=\w)", " ", _text(segment)).replace("\0", "")
    return re.sub(r"[ \t\r\n]+", " ", text).strip(" ")  # other spaces, such as U+00A0, are kept


def _normalized(language: str) -> str:
    return language.lower().replace("_", "-")


def _text(element: Any) -> str:
    """The text of an element and of what follows it, without codes of other programs.

    Placeholders are zero characters, which XML does not allow in a text.
    """
    tag = element.tag.rpartition("}")[2]
    if tag in CODES:
        inside = "\0" if tag in PLACEHOLDERS else ""
    else:
        inside = (element.text or "") + "".join(map(_text, element))
    return inside + (element.tail or "" if tag != "seg" else "")
