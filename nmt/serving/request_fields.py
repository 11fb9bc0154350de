"""Fields of a request's body, checked: those of LibreTranslate, and further ones in the same style."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.inference.translation import Constraint
from nmt.serving.limits import Limits, Refused
from nmt.tokenizer.words import Units

FORM = "application/x-www-form-urlencoded"
FORMATS = ("text", "html")
UNITS: tuple[Units, ...] = ("word", "piece")
DETAILS = ("alignment", "attention", "scores")
MAX_ALTERNATIVES = 20


@dataclass(frozen=True)
class RequestFields:
    """Fields of a body by their names. A method raises Refused if its field is missing or invalid."""

    values: Mapping[str, Any]

    @classmethod
    def parse(cls, body: bytes, content_type: str) -> RequestFields:
        """Fields of a form or of a JSON object. Raises Refused if the body is neither."""
        try:
            text = body.decode("utf-8-sig")
            if content_type == FORM:
                pairs = urllib.parse.parse_qs(text, keep_blank_values=True, errors="strict")
                return cls({name: v[0] if len(v) == 1 else v for name, v in pairs.items()})
            values = json.loads(text)
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            problem = "the body has half of a character (a lone surrogate)"
            raise Refused(400, f"Invalid request: {problem}") from None
        except (ValueError, RecursionError) as error:
            problem = f"the body is not understood ({type(error).__name__})"
            raise Refused(400, f"Invalid request: {problem}") from None
        if not isinstance(values, dict):
            raise Refused(400, "Invalid request: the body must be a JSON object")
        return cls(values)

    def texts(self, name: str) -> list[str]:
        """A text, or a list of texts."""
        value = self._given(name, allow_empty=True)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise Refused(400, f"{name}: give a text or a list of texts")
        return texts

    def is_list(self, name: str) -> bool:
        return not isinstance(self.values.get(name), str)

    def text(self, name: str) -> str:
        value = self._given(name)
        if not isinstance(value, str):
            raise Refused(400, f"{name}: give a text")
        return value

    def optional_text(self, name: str) -> str:
        return self.text(name) if self.values.get(name) else ""

    def words(self, name: str) -> list[str]:
        """A word, or a list of words; none by default."""
        words = self.texts(name) if self.values.get(name) else []
        if not all(word.strip() for word in words):
            raise Refused(400, f"{name}: give a list of words")
        return words

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of the choices, the first by default."""
        value = self.values.get(name) or choices[0]
        if value not in choices:
            raise Refused(400, f"{name}: choose {' or '.join(choices)}")
        return str(value)

    def flag(self, name: str) -> bool:
        value = self.values.get(name, False)
        if value in (True, "true", "1"):
            return True
        if value in (False, None, "false", "0", ""):
            return False
        raise Refused(400, f"{name}: give true or false")

    def count(self, name: str, maximum: int) -> int:
        """A number from 0, which is the default, to `maximum`."""
        value = self.values.get(name) or 0
        text = str(value) if isinstance(value, int | str) else ""
        if not text.isdecimal() or len(text) > 9 or int(text) > maximum:
            raise Refused(400, f"{name}: give a number from 0 to {maximum}")
        return int(text)

    def _given(self, name: str, *, allow_empty: bool = False) -> Any:
        value = self.values.get(name)
        if value is None or (value == "" and not allow_empty):
            raise Refused(400, f"Invalid request: missing {name} parameter")
        return value


@dataclass(frozen=True)
class TranslateRequest:
    """A request to /translate.

    texts: texts to translate
    is_list: whether they were given as a list, and are answered by lists
    source, target: codes of languages; the source may be AUTO
    model: name of the model, or "" for the first of these languages
    html: whether the texts are HTML
    alternatives: number of translations beside the best
    details: names of DETAILS to answer about each sentence
    units: units of alignment and attention
    glossary: translations of source words
    constraint: prefix of each text, words required in and forbidden from each sentence
    """

    texts: list[str]
    is_list: bool
    source: str
    target: str
    model: str
    html: bool
    alternatives: int
    details: frozenset[str]
    units: Units
    glossary: Mapping[str, str]
    constraint: Constraint

    @classmethod
    def of(cls, fields: RequestFields, limits: Limits) -> TranslateRequest:
        """Raises Refused if a field is missing or invalid."""
        texts = fields.texts("q")
        limits.check_texts(texts)
        glossary = _glossary(fields)
        required = fields.words("required")
        forbidden = fields.words("forbidden")
        prefix = fields.optional_text("prefix")
        constraints = [prefix, *glossary, *glossary.values(), *required, *forbidden]
        limits.check_texts(constraints, "glossary, prefix, required and forbidden together")
        return cls(
            texts=texts,
            is_list=fields.is_list("q"),
            source=fields.text("source"),
            target=fields.text("target"),
            model=fields.optional_text("model"),
            html=fields.choice("format", FORMATS) == "html",
            alternatives=fields.count("alternatives", MAX_ALTERNATIVES),
            details=frozenset(name for name in DETAILS if fields.flag(name)),
            units=fields.choice("units", UNITS),  # type: ignore[arg-type]
            glossary=glossary,
            constraint=Constraint(prefix, tuple(required), tuple(forbidden)),
        )

    def constraint_for(self, sentence: str, *, is_first: bool) -> Constraint | None:
        """The constraint of a sentence: with the translations of its words in the glossary; with the prefix if it is the
        first of its text."""
        text = sentence.casefold()
        separated = f" {''.join(c if c.isalnum() else ' ' for c in text)} "
        required = list(self.constraint.required)
        for word, translation in self.glossary.items():
            word = word.casefold()
            if f" {word} " in separated or (not word.isalnum() and word in text):
                required.append(translation)
        prefix = self.constraint.prefix if is_first else ""
        constraint = Constraint(prefix, tuple(required), self.constraint.forbidden)
        return None if constraint == Constraint() else constraint


def _glossary(fields: RequestFields) -> dict[str, str]:
    glossary = fields.values.get("glossary") or {}
    if not isinstance(glossary, dict) or not all(
        isinstance(text, str) and text.strip() for text in (*glossary, *glossary.values())
    ):
        raise Refused(400, "glossary: give an object of source words and their translations")
    return glossary
