"""The OpenAPI document of the server, at /openapi.json."""

from typing import Any

import nmt
from nmt.serving.limits import Limits
from nmt.serving.request_fields import FORM, POSTS, Schema

GETS = {
    "/languages": "Source languages, each with its target languages",
    "/models": "Names, languages and capabilities of the models",
    "/health": "Status of the server and of each model",
    "/ready": "Whether the server accepts requests",
    "/frontend/settings": "Settings in the form of LibreTranslate's web page",
}
"""Summary of each URL path that accepts GET requests, for the OpenAPI document."""
STRING = {"type": "string"}
ERROR = {"type": "object", "properties": {"error": STRING}, "required": ["error"]}


def specification(limits: Limits) -> Schema:
    """Returns the OpenAPI 3.1 document of a server with the given limits."""
    sizes = f"{limits.characters:,} characters, {limits.texts:,} texts or {limits.bytes:,} bytes"
    errors = {
        "400": _response("a field is missing or invalid", ERROR),
        "403": _response("the API key is missing or invalid", ERROR),
        "408": _response("the request body arrives too slowly", ERROR),
        "413": _response(f"the request has more than {sizes}", ERROR),
        "415": _response("the content type is not supported", ERROR),
        "429": _response("the caller sends too many requests", ERROR),
        "503": _response("the server is overloaded, or the response takes too long", ERROR),
    }
    paths: dict[str, Any] = {}
    for path, post in POSTS.items():
        body = {
            "type": "object",
            "properties": {**post.required, **post.optional, "api_key": STRING},
            "required": [*post.required],
        }
        paths[path] = {
            "post": {
                "summary": post.summary,
                "requestBody": {
                    "required": True,
                    "content": {name: {"schema": body} for name in ("application/json", FORM)},
                },
                "responses": {"200": _response("success", post.answer), **errors},
            }
        }
    for path, summary in GETS.items():
        responses = {"200": _response("success", {"type": ["object", "array"]})}
        if path == "/ready":
            responses["503"] = _response("the server is shutting down", ERROR)
        paths[path] = {"get": {"summary": summary, "responses": responses}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nmt",
            "version": nmt.__version__,
            "description": "LibreTranslate's API with additional fields and paths",
        },
        # The server's address is relative to the address of the document, also behind a prefix.
        "servers": [{"url": "."}],
        "paths": paths,
    }


def _response(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
