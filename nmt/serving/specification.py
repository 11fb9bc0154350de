"""OpenAPI document of the server, from which clients and tests can be generated."""

from typing import Any

import nmt
from nmt.serving.limits import Limits
from nmt.serving.request_fields import POSTS, STRING, Schema

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
        "408": "the body arrives too slowly",
        "413": f"more than {sizes}",
        "415": "another content type",
        "429": "too many requests of this caller",
        "503": "too many requests, or too slow an answer",
    }
    error_responses = {status: _response(text, error) for status, text in errors.items()}
    paths: dict[str, Any] = {}
    for path, post in POSTS.items():
        fields = {name: kind.schema for name, kind in {**post.required, **post.optional}.items()}
        properties = {**fields, "api_key": STRING}
        body = {"type": "object", "properties": properties, "required": [*post.required]}
        paths[path] = {
            "post": {
                "summary": post.summary,
                "requestBody": {"required": True, "content": _json_content(body)},
                "responses": {"200": _response("the answer", post.answer), **error_responses},
            }
        }
    for path, summary in GETS.items():
        responses = {"200": _response("the answer", {"type": ["object", "array"]})}
        paths[path] = {"get": {"summary": summary, "responses": responses}}
    description = "LibreTranslate's API, and more in its style"
    info = {"title": "nmt", "version": nmt.__version__, "description": description}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _response(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": _json_content(schema)}


def _json_content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
