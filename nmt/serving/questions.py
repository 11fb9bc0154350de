"""What callers ask, checked: the fields of LibreTranslate's requests, and more in the same style."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.inference.translation import Constraint
from nmt.serving.limits import Limits, Refused
from nmt.tokenizer.words import Units

FORMATS = ("text", "html")
MOST_ALTERNATIVES = 20


@dataclass(frozen=True)
class Question:
    """Texts to translate; `single`: there was one, not a list. `alternatives`: how many translations beside the best;
    `details`: what is told about each sentence (alignment, attention, scores), by `units`."""

    texts: list[str]
    single: bool
    source: str
    target: str
    model: str | None
    html: bool
    alternatives: int
    details: frozenset[str]
    units: Units
    glossary: Mapping[str, str]
    constraint: Constraint

    @classmethod
    def of(cls, fields: Mapping[str, Any], limits: Limits) -> Question:
        """Raises Refused if something is missing or wrong."""
        texts, single = texts_of(fields, "q")
        limits.check_texts(texts)
        form = fields.get("format") or "text"
        if form not in FORMATS:
            raise Refused(400, f"format: choose {' or '.join(FORMATS)}")
        details = frozenset(
            name for name in ("alignment", "attention", "scores") if flag(fields, name)
        )
        units: Units = "piece" if fields.get("units") == "piece" else "word"
        if fields.get("units") not in (None, "", units):
            raise Refused(400, "units: choose word or piece")
        glossary = fields.get("glossary") or {}
        if not isinstance(glossary, Mapping) or not all(
            isinstance(v, str) and v.strip() and k.strip() for k, v in glossary.items()
        ):
            raise Refused(400, "glossary: give an object of source words and their translations")
        prefix = fields.get("prefix") or ""
        if not isinstance(prefix, str):
            raise Refused(400, "prefix: give the text that the translation begins with")
        for text in (prefix, *glossary, *glossary.values()):
            _check_unicode("prefix, glossary", text)
        words = {name: _words(fields, name) for name in ("required", "forbidden")}
        wishes = [prefix, *glossary, *glossary.values(), *words["required"], *words["forbidden"]]
        limits.check_texts(wishes, "glossary, prefix, required and forbidden together")
        return cls(
            texts, single, text_of(fields, "source"), text_of(fields, "target"), name_of(fields), form == "html",
            count(fields, "alternatives", MOST_ALTERNATIVES), details, units, dict(glossary),
            Constraint(prefix, tuple(words["required"]), tuple(words["forbidden"])),
        )  # fmt: skip

    def constraint_for(self, sentence: str, first: bool) -> Constraint | None:
        """What the translation of a sentence must hold: of the glossary, what its words ask for; the prefix stands at the
        beginning of the first sentence."""
        text = sentence.casefold()
        padded = f" {''.join(c if c.isalnum() else ' ' for c in text)} "
        pairs = [(word.casefold(), to) for word, to in self.glossary.items()]
        asked = [
            to
            for word, to in pairs
            if f" {word} " in padded or (not word.isalnum() and word in text)
        ]
        wish = Constraint(
            self.constraint.prefix if first else "",
            (*self.constraint.required, *asked),
            self.constraint.forbidden,
        )
        return None if wish == Constraint() else wish


def texts_of(fields: Mapping[str, Any], name: str) -> tuple[list[str], bool]:
    """A text or a list of texts, and whether it was a single one. Raises Refused if it is neither."""
    value = fields.get(name)
    if value is None:
        raise Refused(400, f"Invalid request: missing {name} parameter")
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"{name}: give a text or a list of texts")
    for text in texts:
        _check_unicode(name, text)
    return texts, isinstance(value, str)


def text_of(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None or value == "":
        raise Refused(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise Refused(400, f"{name}: give a text")
    _check_unicode(name, value)
    return value


def name_of(fields: Mapping[str, Any]) -> str | None:
    value = fields.get("model")
    if value is not None and not isinstance(value, str):
        raise Refused(400, "model: give a name")
    return value or None


def flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if value in (True, "true", "1"):
        return True
    if value in (False, None, "false", "0", ""):
        return False
    raise Refused(400, f"{name}: give true or false")


def count(fields: Mapping[str, Any], name: str, most: int) -> int:
    value = fields.get(name) or 0
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise Refused(400, f"{name}: give a number from 0 to {most}")
    return number


def _words(fields: Mapping[str, Any], name: str) -> list[str]:
    value = fields.get(name) or []
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(
        isinstance(word, str) and word.strip() for word in words
    ):
        raise Refused(400, f"{name}: give a list of words")
    for word in words:
        _check_unicode(name, word)
    return words


def _check_unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(400, f"{name}: holds half of a character (a lone surrogate)") from None
