"""OpenAPI document of the server, from which clients and tests can be generated."""

from dataclasses import dataclass, field
from typing import Any

import nmt
from nmt.serving.limits import Limits
from nmt.serving.request_fields import DETAILS, FORMATS, MAX_ALTERNATIVES, UNITS

Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
NUMBERS: Schema = {"type": "array", "items": NUMBER}
STRINGS: Schema = {"type": "array", "items": STRING}
TEXTS: Schema = {"oneOf": [STRING, STRINGS]}
ANYTHING: Schema = {"type": ["object", "array"]}
LANGUAGES: Schema = {
    "source": {**STRING, "description": "a code of /languages, or auto"},
    "target": STRING,
}
MODEL: Schema = {"model": STRING}
OF_A_SENTENCE: Schema = {**MODEL, "sentence": NUMBER}


@dataclass(frozen=True)
class Post:
    """A path of POST: what it does, and the schemas of its fields and its answer."""

    summary: str
    required: Schema
    optional: Schema = field(default_factory=dict)
    answer: Schema = field(default_factory=ANYTHING.copy)


POSTS = {
    "/translate": Post(
        "Translates texts",
        {"q": TEXTS, **LANGUAGES},
        {
            **MODEL,
            "format": {**STRING, "enum": [*FORMATS]},
            "alternatives": {**NUMBER, "maximum": MAX_ALTERNATIVES},
            **dict.fromkeys(DETAILS, FLAG),
            "units": {**STRING, "enum": [*UNITS]},
            "glossary": {"type": "object", "additionalProperties": STRING},
            "prefix": STRING,
            "required": STRINGS,
            "forbidden": STRINGS,
        },
        {
            "type": "object",
            "required": ["translatedText"],
            "properties": {
                "translatedText": TEXTS,
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
        {"q": STRING, **LANGUAGES},
        {
            **OF_A_SENTENCE,
            "prefix": NUMBERS,
            "whole": FLAG,
            "translation": STRING,
            "looks": {"type": "array", "items": NUMBERS},
        },
    ),
    "/neighbors": Post(
        "Training sentences with similar summaries of the encoder",
        {"q": STRING, **LANGUAGES},
        {**OF_A_SENTENCE, "count": NUMBER},
    ),
    "/contrast": Post(
        "Influence of source words on the choice between two translations",
        {"q": STRING, "translations": STRINGS, **LANGUAGES},
        OF_A_SENTENCE,
    ),
    "/classify": Post("Labels of texts", {"q": TEXTS}, MODEL),
}
GETS = {
    "/languages": "Source languages, and the target languages of each",
    "/models": "Models by their names",
    "/health": "Status of the server",
    "/frontend/settings": "Settings for the page of LibreTranslate",
}
"""Summary of each path of GET."""


def specification(limits: Limits) -> Schema:
    """OpenAPI 3.1."""
    sizes = f"{limits.characters:,} characters, {limits.texts:,} texts or {limits.bytes:,} bytes"
    error = {"type": "object", "properties": {"error": STRING}, "required": ["error"]}
    errors = {
        "400": "a field is missing or invalid",
        "403": "no valid key",
        "413": f"more than {sizes}",
        "415": "another content type",
        "429": "too many requests of this caller",
        "503": "too many requests, or too slow an answer",
    }
    error_responses = {status: _response(text, error) for status, text in errors.items()}
    paths: Schema = {}
    for path, post in POSTS.items():
        fields = {**post.required, **post.optional, "api_key": STRING}
        body = {"type": "object", "properties": fields, "required": [*post.required]}
        paths[path] = {
            "post": {
                "summary": post.summary,
                "requestBody": {"required": True, "content": _json_content(body)},
                "responses": {"200": _response("the answer", post.answer), **error_responses},
            }
        }
    for path, summary in GETS.items():
        responses = {"200": _response("the answer", ANYTHING)}
        paths[path] = {"get": {"summary": summary, "responses": responses}}
    description = "LibreTranslate's API, and more in its style"
    info = {"title": "nmt", "version": nmt.__version__, "description": description}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _response(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": _json_content(schema)}


def _json_content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
