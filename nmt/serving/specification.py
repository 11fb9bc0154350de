"""The server's requests and answers as an OpenAPI document, by which others make clients and tests."""

from __future__ import annotations

from typing import Any

import nmt
from nmt.serving.limits import Limits
from nmt.serving.questions import FORMATS, MOST_ALTERNATIVES

TEXTS: dict[str, Any] = {
    "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
}
STRING, FLAG = {"type": "string"}, {"type": "boolean"}
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
LIST_OF_STRINGS = {"type": "array", "items": STRING}


def specification(limits: Limits) -> dict[str, Any]:
    """OpenAPI 3.1."""
    languages = {
        "source": {**STRING, "description": "a code of /languages, or auto"},
        "target": STRING,
        "model": STRING,
    }
    options = {
        "format": {"type": "string", "enum": [*FORMATS]},
        "alternatives": {"type": "integer", "minimum": 0, "maximum": MOST_ALTERNATIVES},
        "alignment": FLAG, "attention": FLAG, "scores": FLAG, "units": {"type": "string", "enum": ["word", "piece"]},
        "glossary": {"type": "object", "additionalProperties": STRING}, "prefix": STRING,
        "required": LIST_OF_STRINGS, "forbidden": LIST_OF_STRINGS,
    }  # fmt: skip
    translated = {
        "type": "object", "required": ["translatedText"],
        "properties": {"translatedText": TEXTS, "alternatives": {"type": "array"}, "sentences": {"type": "array"}},
    }  # fmt: skip
    anything = {"type": ["object", "array"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "nmt", "version": nmt.__version__, "description": "LibreTranslate's API, and more in its style"},
        "paths": {
            "/translate": _asked(
                "Translates", {"q": TEXTS, **languages, **options}, ["q", "source", "target"], translated, limits
            ),
            "/detect": _asked("Says why languages are not detected", {"q": TEXTS}, ["q"], anything, limits),
            "/score": _asked(
                "The probability of given translations", {"q": TEXTS, "translation": TEXTS, **languages},
                ["q", "translation", "source", "target"], anything, limits,
            ),
            "/explain": _asked(
                "Why a sentence is translated so: attention, other words at each place, the search",
                {
                    "q": STRING, **languages, "sentence": NUMBERS["items"], "prefix": NUMBERS, "whole": FLAG,
                    "translation": STRING, "looks": {"type": "array", "items": NUMBERS},
                },
                ["q", "source", "target"], anything, limits,
            ),
            "/neighbors": _asked(
                "Training sentences that the model reads alike",
                {"q": STRING, **languages, "sentence": NUMBERS["items"], "count": NUMBERS["items"]},
                ["q", "source", "target"], anything, limits,
            ),
            "/contrast": _asked(
                "Which source words speak for one translation rather than another",
                {"q": STRING, "translations": LIST_OF_STRINGS, **languages}, ["q", "translations", "source", "target"],
                anything, limits,
            ),
            "/classify": _asked("Labels texts", {"q": TEXTS, "model": STRING}, ["q"], anything, limits),
            "/languages": _told("The languages translated from, and into which"),
            "/models": _told("The models by their names"),
            "/health": _told("Whether the server answers"),
            "/frontend/settings": _told("What LibreTranslate's page asks for"),
        },
    }  # fmt: skip


def _asked(
    summary: str,
    fields: dict[str, Any],
    required: list[str],
    answer: dict[str, Any],
    limits: Limits,
) -> Any:
    schema = {"type": "object", "properties": {**fields, "api_key": STRING}, "required": required}
    error = {"type": "object", "properties": {"error": STRING}, "required": ["error"]}
    refused = {
        status: {"description": why, "content": {"application/json": {"schema": error}}}
        for status, why in {
            "400": "something is missing or wrong", "403": "no valid key", "415": "another kind of body",
            "413": f"more than {limits.characters:,} characters, {limits.texts:,} texts or {limits.bytes:,} bytes",
            "429": "too many requests of this caller", "503": "too many requests, or too slow an answer",
        }.items()
    }  # fmt: skip
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {
                "200": {
                    "description": "the answer",
                    "content": {"application/json": {"schema": answer}},
                },
                **refused,
            },
        }
    }


def _told(summary: str) -> Any:
    answer = {"application/json": {"schema": {"type": ["object", "array"]}}}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": {"description": "the answer", "content": answer}},
        }
    }
