"""OpenAPI document of the server, from which clients and tests can be generated."""

from typing import Any

import nmt
from nmt.serving.limits import Limits
from nmt.serving.request_fields import POSTS, Schema

GETS = {
    "/languages": "Source languages, and the target languages of each",
    "/models": "Models by their names",
    "/health": "Status of the server",
    "/frontend/settings": "Settings for the page of LibreTranslate",
}
"""Summary of each path of GET."""
STRING = {"type": "string"}
ERROR = {"type": "object", "properties": {"error": STRING}, "required": ["error"]}


def specification(limits: Limits) -> Schema:
    """OpenAPI 3.1."""
    sizes = f"{limits.characters:,} characters, {limits.texts:,} texts or {limits.bytes:,} bytes"
    errors = {
        "400": _response("a field is missing or invalid", ERROR),
        "403": _response("no valid key", ERROR),
        "408": _response("the body arrives too slowly", ERROR),
        "413": _response(f"more than {sizes}", ERROR),
        "415": _response("another content type", ERROR),
        "429": _response("too many requests of this caller", ERROR),
        "503": _response("too many requests, or too slow an answer", ERROR),
    }
    paths: dict[str, Any] = {}
    for path, post in POSTS.items():
        properties = {**post.required, **post.optional, "api_key": STRING}
        body = {"type": "object", "properties": properties, "required": [*post.required]}
        paths[path] = {
            "post": {
                "summary": post.summary,
                "requestBody": {"required": True, "content": _json_content(body)},
                "responses": {"200": _response("the answer", post.answer), **errors},
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
