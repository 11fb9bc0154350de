"""Reads translation memories (TMX); columns are language codes, and en matches EN and en-US."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from nmt.data.formats import Rows
from nmt.data.lines import batched, open_file, reading
from nmt.foundation.errors import UserError
from nmt.tokenizer.words import MARKS

log = logging.getLogger(__name__)
CODES = ("bpt", "ept", "ph", "it", "ut")
"""TMX elements inside a text that contain formatting codes instead of text."""
PLACEHOLDERS = ("ph", "ut")
"""TMX elements that stand for content such as a line break and therefore separate words."""
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
Unit = Mapping[str, str | None]
"""Texts of a translation unit by language; None for a variant without a segment."""


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """Yields the translation units that contain all requested languages.

    Raises UserError if no unit contains all requested languages.
    """
    languages = set[str]()
    num_units = 0
    num_complete = 0
    with reading(file, " as TMX"), open_file(file) as opened:
        for units in batched(_units(opened)):
            languages.update(*units)
            texts = [[_text_in(unit, language) for language in columns] for unit in units]
            complete = [row for row in texts if None not in row]
            if complete:
                yield Rows(
                    name=str(file),
                    names=columns,
                    values=dict(zip(columns, zip(*complete, strict=True), strict=True)),
                )
            num_units += len(units)
            num_complete += len(complete)
    requested = " and ".join(columns)
    if not num_complete:
        available = ", ".join(sorted(languages)) or "none"
        raise UserError(
            f"{file}: no translation unit contains {requested} (languages: {available})"
        )
    if num_complete < num_units:
        missing = f"{num_units - num_complete:,} of {num_units:,}"
        log.warning("%s: skipped %s translation units that lack %s", file, missing, requested)


def _units(opened: Any) -> Iterator[Unit]:
    """Yields the translation units, each with the first variant of every language."""
    body: Any = None
    for event, element in ElementTree.iterparse(opened, ("start", "end")):
        tag = element.tag.rpartition("}")[2]
        if tag == "body":
            body = element
        elif tag == "tu" and event == "end":
            unit: dict[str, str | None] = {}
            for tuv in element.findall("{*}tuv"):
                unit.setdefault(tuv.get(LANGUAGE) or tuv.get("lang") or "", _segment(tuv))
            yield unit
            # Frees the unit, so that memory use does not grow with the file.
            (element if body is None else body).clear()


def _text_in(unit: Unit, language: str) -> str | None:
    """Returns the text in a language or, failing that, in a regional variant of the language."""
    code = _normalized(language)
    variants = [(_normalized(name), text) for name, text in unit.items()]
    exact = [text for name, text in variants if name == code]
    regional = [text for name, text in variants if name.partition("-")[0] == code]
    return next(iter(exact + regional), None)


def _normalized(language: str) -> str:
    return language.lower().replace("_", "-")


def _segment(tuv: Any) -> str | None:
    """Returns the text of a language variant; None if the variant has no segment."""
    segment = tuv.find("{*}seg")
    if segment is None:
        return None
    text = re.sub(rf"(?<=[\w{MARKS}])\0+(?=\w)", " ", _text(segment)).replace("\0", "")
    return re.sub(r"[ \t\r\n]+", " ", text).strip(" ")  # other spaces, such as U+00A0, are kept


def _text(element: Any) -> str:
    """Returns the text of an element and its tail, without formatting codes.

    Placeholder elements become NUL characters, which XML does not allow in a text.
    """
    tag = element.tag.rpartition("}")[2]
    if tag in CODES:
        inside = "\0" if tag in PLACEHOLDERS else ""
    else:
        inside = (element.text or "") + "".join(map(_text, element))
    return inside + (element.tail or "" if tag != "seg" else "")
