"""Fields of requests.

The fields are those of LibreTranslate, and additional fields in the same style. Each field has a
JSON schema, which is used to check requests and is part of /openapi.json.
"""

import json
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nmt.serving.limits import Refused

Fields = Mapping[str, Any]
"""Values of a request's fields, by field name."""
Schema = dict[str, Any]
FORM = "application/x-www-form-urlencoded"
MAX_NUMBERS = 1000
"""Maximum number of items in a request field that is a list of numbers."""
MAX_PREFIX = 500
"""Maximum number of characters of the field `prefix`, which extends the limit of the translation's
length."""
MAX_TRANSLATION = 1000
"""Maximum number of characters of a translation to explain or to compare with another."""
LARGEST = 2**31 - 1
"""Maximum value of a token id, position or sentence number in a request."""
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def declared(expected: str, type: str | list[str], default: Any = None, **rules: Any) -> Schema:
    """Returns the JSON schema of a field.

    expected: description of the valid values, for messages
    type: JSON type, or a list of valid types, such as ["string", "array"]
    default: value used if the field is missing
    rules: further keywords of JSON schema
    """
    return {"description": expected, "type": type, "default": default, **rules}


def number(maximum: int) -> Schema:
    """Returns the JSON schema of an integer from 0 to a maximum; the default is 0."""
    return declared(f"a number from 0 to {maximum:,}", "integer", 0, minimum=0, maximum=maximum)


def choice(*choices: str) -> Schema:
    """Returns the JSON schema of a field with a fixed set of choices; the first is the default."""
    return declared(" or ".join(choices), "string", choices[0], enum=[*choices])


TEXT = declared("a text", "string", "")
TEXTS = declared("a text or a list of texts", ["string", "array"], "", items=TEXT)
PREFIX = declared(f"a text of at most {MAX_PREFIX} characters", "string", "", maxLength=MAX_PREFIX)
TRANSLATION = declared(
    f"a text of at most {MAX_TRANSLATION:,} characters", "string", "", maxLength=MAX_TRANSLATION
)
WORD = declared("a text that is not blank", "string", "", pattern=r"\S")
WORDS = declared("a list of words that are not blank", "array", [], items=WORD)
TRANSLATIONS = declared(
    f"a list of two texts of at most {MAX_TRANSLATION:,} characters that are not blank",
    "array",
    items={**TRANSLATION, "pattern": r"\S"},
    minItems=2,
    maxItems=2,
)
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
    "an object of source words and their translations, none of them blank",
    "object",
    {},
    additionalProperties=WORD,
)


def parsed(value: Any, schema: Schema) -> Any:
    """Returns the converted value of a field, or None if the value does not match the schema.

    A string is also accepted for a number, a flag or a list with one item, since the values of HTML
    forms are always strings.
    """
    kind = schema["type"]
    if isinstance(kind, list):
        kind = "array" if isinstance(value, list) else "string"
    match kind:
        case "string" if isinstance(value, str):
            has_pattern = re.search(schema.get("pattern", ""), value) is not None
            is_short = len(value) <= schema.get("maxLength", LARGEST)
            is_valid = has_pattern and is_short and value in schema.get("enum", [value])
            return value if is_valid else None
        case "boolean":
            return BOOLEANS.get(str(value).lower())
        case "integer" if isinstance(value, int | float | str):
            text = str(value).removesuffix(".0")  # 1.0 is an integer in JSON schema
            # Python does not parse very long numbers.
            is_valid = text.isdecimal() and len(text) < 12 and int(text) <= schema["maximum"]
            return int(text) if is_valid else None
        case "array" if isinstance(value, list | str):
            values = [value] if isinstance(value, str) else value
            items = [parsed(item, schema["items"]) for item in values]
            sizes = range(schema.get("minItems", 0), schema.get("maxItems", LARGEST) + 1)
            return items if None not in items and len(items) in sizes else None
        case "object":
            entries = _json_of_form(value)
            if isinstance(entries, dict):
                words = parsed([*entries, *entries.values()], WORDS)
                return None if words is None else entries
    return None


def _json_of_form(value: Any) -> Any:
    """Returns the object that the text of a form field contains, and other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        entries = json.loads(value)
        json.dumps(entries, ensure_ascii=False).encode()  # raises ValueError for a lone surrogate
    except (ValueError, RecursionError):
        return None
    return entries


@dataclass(frozen=True)
class Post:
    """Description of a URL path that accepts POST requests.

    summary: purpose of the path
    required: schemas of the required fields
    optional: schemas of the optional fields
    answer: schema of the response
    """

    summary: str
    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)
    answer: Schema = field(default_factory=lambda: {"type": ["object", "array"]})

    def checked(self, values: Fields) -> dict[str, Any]:
        """Returns the converted values of all fields; raises Refused for a missing or invalid
        field."""
        fields = {}
        for name, schema in {**self.required, **self.optional}.items():
            value = values.get(name)
            # An empty q or translation is a text. Other empty fields of a form are missing fields.
            is_missing = value is None or (value == "" and name not in ("q", "translation"))
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
        "Translate texts",
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
            "prefix": PREFIX,
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
    "/detect": Post("Return an error: languages are not detected", {"q": TEXTS}),
    "/score": Post(
        "Score given translations", {"q": TEXTS, "translation": TEXTS, **LANGUAGES}, MODEL
    ),
    "/explain": Post(
        "Return the attention weights, alternative words and search tree of a translation",
        {"q": TEXT, **LANGUAGES},
        {
            **OF_A_SENTENCE,
            "prefix": NUMBERS,
            "whole": FLAG,
            "translation": TRANSLATION,
            "attend_to": PAIRS,
        },
    ),
    "/neighbors": Post(
        "Return the training sentences with the most similar encoder states",
        {"q": TEXT, **LANGUAGES},
        {**OF_A_SENTENCE, "count": number(50)},
    ),
    "/contrast": Post(
        "Return the influence of source words on the choice between two translations",
        {"q": TEXT, "translations": TRANSLATIONS, **LANGUAGES},
        OF_A_SENTENCE,
    ),
    "/classify": Post("Classify texts", {"q": TEXTS}, MODEL),
}


def parse_body(body: bytes, content_type: str) -> Fields:
    """Parses a request body; raises Refused if the body is neither a form nor a JSON object."""
    problem = "the body must be a JSON object or a form"
    try:
        text = body.decode("utf-8-sig")
        if content_type == FORM:
            pairs = urllib.parse.parse_qs(text, keep_blank_values=True, errors="strict")
            # a field that occurs several times becomes a list
            return {name: v[0] if len(v) == 1 else v for name, v in pairs.items()}
        values = json.loads(text)
        # JSON may escape lone surrogates, which no response can contain.
        json.dumps(values, ensure_ascii=False).encode()
        if isinstance(values, dict):
            return values
    except UnicodeEncodeError:
        problem = "the body contains a lone surrogate (half of a UTF-16 character)"
    except UnicodeDecodeError:
        problem = "the body is not UTF-8"
    except RecursionError:
        problem = "the body is nested too deeply"
    except ValueError as error:
        problem = f"the body is not valid ({error})"
    raise Refused(400, f"Invalid request: {problem}")
