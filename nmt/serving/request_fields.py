"""Fields of requests: those of LibreTranslate, and further ones in the same style.

A field is declared once, by a JSON schema: requests are checked by it, and /openapi.json has it.
"""

import json
import re
import urllib.parse
from collections.abc import Mapping
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
LARGEST = 2**31 - 1
"""Largest token id, position or number of a sentence."""
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def declared(expected: str, type: str | list[str], default: Any = None, **rules: Any) -> Schema:
    """The schema of a field.

    expected: valid values in words
    type: JSON type; a list for a choice between a text and an array
    default: value of a missing field
    rules: further rules of a JSON schema
    """
    return {"description": expected, "type": type, "default": default, **rules}


def number(maximum: int) -> Schema:
    """Schema of numbers from 0 to a maximum."""
    return declared(f"a number from 0 to {maximum:,}", "integer", 0, minimum=0, maximum=maximum)


def choice(*choices: str) -> Schema:
    """Schema of choices. The first is the default."""
    return declared(" or ".join(choices), "string", choices[0], enum=[*choices])


TEXT = declared("a text", "string", "")
TEXTS = declared("a text or a list of texts", ["string", "array"], "", items=TEXT)
WORD = declared("a text that is not blank", "string", "", pattern=r"\S")
WORDS = declared("a list of words", "array", [], items=WORD)
FLAG = declared("true or false", "boolean", False)
NUMBERS = declared(
    f"a list of at most {MAX_NUMBERS:,} numbers",
    "array",
    [],
    items=number(LARGEST),
    maxItems=MAX_NUMBERS,
)
PAIR = declared("a pair of numbers", "array", items=number(LARGEST), minItems=2, maxItems=2)
PAIRS = declared("a list of pairs [step, position]", "array", [], items=PAIR)
GLOSSARY = declared(
    "an object of source words and their translations", "object", {}, additionalProperties=WORD
)


def as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def parsed(value: Any, schema: Schema) -> Any:
    """Value of a field for the program; None if it does not match the schema.

    Forms have texts only: a number, a flag or the only item of a list may be a text.
    """
    kind = schema["type"]
    if isinstance(kind, list):
        kind = "array" if isinstance(value, list) else "string"
    match kind:
        case "string" if isinstance(value, str):
            is_valid = re.search(schema.get("pattern", ""), value) is not None
            return value if is_valid and value in schema.get("enum", [value]) else None
        case "boolean":
            return BOOLEANS.get(str(value).lower())
        case "integer" if isinstance(value, int | str):
            text = str(value)
            # Python refuses to read very long numbers.
            is_valid = text.isdecimal() and len(text) < 12 and int(text) <= schema["maximum"]
            return int(text) if is_valid else None
        case "array" if isinstance(value, list | str):
            items = [parsed(item, schema["items"]) for item in as_list(value)]
            sizes = range(schema.get("minItems", 0), schema.get("maxItems", LARGEST) + 1)
            return items if None not in items and len(items) in sizes else None
        case "object" if isinstance(value, dict):
            words = parsed([*value, *value.values()], WORDS)
            return None if words is None else value
    return None


@dataclass(frozen=True)
class Post:
    """A path of POST: its purpose, its fields, and the schema of its answer."""

    summary: str
    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)
    answer: Schema = field(default_factory=lambda: {"type": ["object", "array"]})

    def checked(self, values: Fields) -> dict[str, Any]:
        """Values of all fields. Raises Refused if one is missing or invalid."""
        fields = {}
        for name, schema in {**self.required, **self.optional}.items():
            value = values.get(name)
            # An empty text is a text to translate; an empty field of a form is a missing field.
            is_missing = value is None or (value == "" and name != "q")
            if is_missing and name in self.required:
                raise Refused(400, f"Invalid request: missing {name} parameter")
            fields[name] = schema["default"] if is_missing else parsed(value, schema)
            if fields[name] is None:
                raise Refused(400, f"{name}: expected {schema['description']}")
        return fields


LANGUAGES = {"source": TEXT, "target": TEXT}
MODEL = {"model": TEXT}
OF_A_SENTENCE = {**MODEL, "sentence": number(LARGEST)}
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
        {
            "type": "object",
            "required": ["translatedText"],
            "properties": {
                "translatedText": {"type": ["string", "array"], "items": {"type": "string"}},
                "alternatives": {"type": "array"},
                "sentences": {"type": "array"},
            },
        },
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
            # repeated fields are lists
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
