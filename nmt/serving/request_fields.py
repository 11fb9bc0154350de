"""Fields of requests, checked: those of LibreTranslate, and further ones in the same style."""

import json
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nmt.inference.translation import Constraint
from nmt.serving.limits import Refused

Fields = Mapping[str, Any]
"""Values by the names of fields."""
Schema = dict[str, Any]
FORM = "application/x-www-form-urlencoded"
MAX_NUMBERS = 1000
"""Numbers of a list."""
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class FieldType:
    """Type of a field.

    expected: valid values in words
    schema: JSON schema of them
    default: value of a missing field
    parse: value for the program; None if invalid
    """

    expected: str
    schema: Schema
    default: Any
    parse: Callable[[Any], Any]


def as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _texts(value: Any) -> str | list[str] | None:
    is_list = isinstance(value, list) and all(isinstance(text, str) for text in value)
    return value if is_list or isinstance(value, str) else None


def _words(value: Any) -> list[str] | None:
    texts = _texts(value)
    words = None if texts is None else as_list(texts)
    return words if words is not None and all(map(str.strip, words)) else None


def _glossary(value: Any) -> dict[str, str] | None:
    is_valid = isinstance(value, dict) and _words([*value, *value.values()]) is not None
    return value if is_valid else None


def _numbers(value: Any) -> list[int] | None:
    is_valid = isinstance(value, list) and all(type(n) is int and 0 <= n < 2**31 for n in value)
    return value if is_valid and len(value) <= MAX_NUMBERS else None


def _pairs(value: Any) -> dict[int, int] | None:
    is_valid = isinstance(value, list) and all(len(_numbers(pair) or []) == 2 for pair in value)
    return dict(value) if is_valid else None


def number(maximum: int) -> FieldType:
    """Type of numbers from 0 to a maximum."""

    def parse(value: Any) -> int | None:
        text = str(value) if isinstance(value, int | str) else ""
        # Python refuses to read very long numbers.
        is_valid = text.isdecimal() and len(text) < 12 and int(text) <= maximum
        return int(text) if is_valid else None

    schema = {"type": "integer", "minimum": 0, "maximum": maximum}
    return FieldType(f"a number from 0 to {maximum:,}", schema, 0, parse)


def choice(*choices: str) -> FieldType:
    """Type of choices. The first is the default."""
    schema = {"type": "string", "enum": [*choices]}
    expected = " or ".join(choices)
    return FieldType(
        expected, schema, choices[0], lambda value: value if value in choices else None
    )


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
TEXT = FieldType("a text", STRING, "", lambda value: value if isinstance(value, str) else None)
TEXTS = FieldType("a text or a list of texts", {"oneOf": [STRING, list_of(STRING)]}, "", _texts)
WORDS = FieldType("a list of words", list_of(STRING), [], _words)
FLAG = FieldType(
    "true or false", {"type": "boolean"}, False, lambda value: BOOLEANS.get(str(value).lower())
)
NUMBERS = FieldType(f"a list of at most {MAX_NUMBERS:,} numbers", list_of(NUMBER), [], _numbers)
PAIRS = FieldType("a list of pairs [step, position]", list_of(list_of(NUMBER)), {}, _pairs)
GLOSSARY = FieldType(
    "an object of source words and their translations",
    {"type": "object", "additionalProperties": STRING},
    {},
    _glossary,
)


@dataclass(frozen=True)
class Post:
    """A path of POST: its purpose, its fields, and the schema of its answer."""

    summary: str
    required: Mapping[str, FieldType]
    optional: Mapping[str, FieldType] = field(default_factory=dict)
    answer: Schema = field(default_factory=lambda: {"type": ["object", "array"]})

    def checked(self, values: Fields) -> dict[str, Any]:
        """Values of all fields. Raises Refused if one is missing or invalid."""
        fields = {}
        for name, kind in {**self.required, **self.optional}.items():
            value = values.get(name)
            # An empty text is a text to translate; an empty field of a form is a missing field.
            is_missing = value is None or (value == "" and name != "q")
            if is_missing and name in self.required:
                raise Refused(400, f"Invalid request: missing {name} parameter")
            fields[name] = kind.default if is_missing else kind.parse(value)
            if fields[name] is None:
                raise Refused(400, f"{name}: expected {kind.expected}")
        return fields


LANGUAGES = {"source": TEXT, "target": TEXT}
MODEL = {"model": TEXT}
OF_A_SENTENCE = {**MODEL, "sentence": number(2**31)}
TRANSLATED = {
    "type": "object",
    "required": ["translatedText"],
    "properties": {
        "translatedText": TEXTS.schema,
        "alternatives": {"type": "array"},
        "sentences": {"type": "array"},
    },
}
POSTS = {
    "/translate": Post(
        "Translates texts",
        {"q": TEXTS, **LANGUAGES},
        {
            **MODEL,
            "format": choice("text", "html"),
            "alternatives": number(20),
            "alignment": FLAG,
            "attention": FLAG,
            "scores": FLAG,
            "units": choice("word", "piece"),
            "glossary": GLOSSARY,
            "prefix": TEXT,
            "required": WORDS,
            "forbidden": WORDS,
        },
        TRANSLATED,
    ),
    "/detect": Post("Refuses to detect languages", {"q": TEXTS}),
    "/score": Post(
        "Probabilities of translations", {"q": TEXTS, "translation": TEXTS, **LANGUAGES}, MODEL
    ),
    "/explain": Post(
        "Attention, other words at each place, and the search of a translation",
        {"q": TEXT, **LANGUAGES},
        {**OF_A_SENTENCE, "prefix": NUMBERS, "whole": FLAG, "translation": TEXT, "looks": PAIRS},
    ),
    "/neighbors": Post(
        "Training sentences with similar summaries of the encoder",
        {"q": TEXT, **LANGUAGES},
        {**OF_A_SENTENCE, "count": number(50)},
    ),
    "/contrast": Post(
        "Influence of source words on the choice between two translations",
        {"q": TEXT, "translations": WORDS, **LANGUAGES},
        OF_A_SENTENCE,
    ),
    "/classify": Post("Labels of texts", {"q": TEXTS}, MODEL),
}


def parse_body(body: bytes, content_type: str) -> Fields:
    """Fields of a form or of a JSON object. Raises Refused if a body is neither."""
    problem = "the body must be a JSON object"
    try:
        text = body.decode("utf-8-sig")
        if content_type == FORM:
            pairs = urllib.parse.parse_qs(text, keep_blank_values=True, errors="strict")
            return {name: v[0] if len(v) == 1 else v for name, v in pairs.items()}
        values = json.loads(text)
        # JSON may escape halves of characters, which no answer can hold.
        json.dumps(values, ensure_ascii=False).encode()
        if isinstance(values, dict):
            return values
    except UnicodeEncodeError:
        problem = "the body has half of a character (a lone surrogate)"
    except (ValueError, RecursionError) as error:
        problem = f"the body is not understood ({type(error).__name__})"
    raise Refused(400, f"Invalid request: {problem}")


def constraint_of(fields: Fields, sentence: str, *, is_first: bool) -> Constraint | None:
    """The constraint of a sentence: with translations of its words by the glossary; with the prefix
    if it is the first of its text."""
    text = sentence.casefold()
    # Punctuation as spaces, so that a word of the glossary is found as a whole word.
    separated = f" {''.join(c if c.isalnum() else ' ' for c in text)} "
    required = list(fields["required"])
    for source_word, translation in fields["glossary"].items():
        word = source_word.casefold()
        if f" {word} " in separated or (not word.isalnum() and word in text):
            required.append(translation)
    prefix = fields["prefix"] if is_first else ""
    constraint = Constraint(prefix, tuple(required), tuple(fields["forbidden"]))
    return None if constraint == Constraint() else constraint
