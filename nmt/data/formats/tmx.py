"""Translation memories (TMX). Columns are languages: en finds en, EN and en-US."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from nmt.data.formats import Rows
from nmt.data.lines import batched, open_file, reading
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
CODES = ("bpt", "ept", "ph", "it", "ut")
"""Elements in a text that contain codes of another program, not text."""
PLACEHOLDERS = ("ph", "ut")
"""Codes in place of something, such as a line break: they separate words."""
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
Unit = Mapping[str, str | None]
"""Texts of a translation unit by language; a variant without a segment has None."""


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The translation units that have all languages. Raises UserError if no unit has them."""
    languages = set[str]()
    num_units = 0
    num_complete = 0
    with reading(file, " as TMX"), open_file(file) as opened:
        for units in batched(_units(opened)):
            languages.update(*units)
            texts = [[_text_in(unit, language) for language in columns] for unit in units]
            complete = [row for row in texts if None not in row]
            if complete:
                values = dict(zip(columns, zip(*complete, strict=True), strict=True))
                yield Rows(str(file), columns, values)
            num_units += len(units)
            num_complete += len(complete)
    requested = " and ".join(columns)
    if not num_complete:
        available = ", ".join(sorted(languages)) or "none"
        raise UserError(f"{file}: no translation units with {requested}. It has: {available}")
    if num_complete < num_units:
        missing = f"{num_units - num_complete:,} of {num_units:,}"
        log.warning("%s: %s translation units lack %s", file, missing, requested)


def _units(opened: Any) -> Iterator[Unit]:
    """The translation units, each with the first variant of each language."""
    body: Any = None
    for event, element in ElementTree.iterparse(opened, ("start", "end")):
        tag = element.tag.rpartition("}")[2]
        if tag == "body":
            body = element
        elif tag == "tu" and event == "end":
            variants = reversed(element.findall("{*}tuv"))
            yield {tuv.get(LANGUAGE) or tuv.get("lang") or "": _segment(tuv) for tuv in variants}
            # Releases the unit, so that memory does not grow with the file.
            (element if body is None else body).clear()


def _text_in(unit: Unit, language: str) -> str | None:
    """The text in a language, or in a regional variant of it."""
    code = _normalized(language)
    by_language = {_normalized(name): text for name, text in unit.items()}
    regional = (text for name, text in by_language.items() if name.partition("-")[0] == code)
    return by_language.get(code, next(regional, None))


def _normalized(language: str) -> str:
    return language.lower().replace("_", "-")


def _segment(tuv: Any) -> str | None:
    """The text of a variant."""
    segment = tuv.find("{*}seg")
    if segment is None:
        return None
    text = re.sub(r"(?<=\w)\0+(?=\w)", " ", _text(segment)).replace("\0", "")
    return re.sub(r"[ \t\r\n]+", " ", text).strip(" ")  # other spaces, such as U+00A0, are kept


def _text(element: Any) -> str:
    """The text of an element and the text after it, without codes of other programs.

    Placeholders are zero characters, which XML does not allow in a text.
    """
    tag = element.tag.rpartition("}")[2]
    if tag in CODES:
        inside = "\0" if tag in PLACEHOLDERS else ""
    else:
        inside = (element.text or "") + "".join(map(_text, element))
    return inside + (element.tail or "" if tag != "seg" else "")
