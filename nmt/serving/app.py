"""ASGI application with LibreTranslate's HTTP API and additional fields and paths.

nmt/serving/README.md describes the API.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nmt.foundation.errors import UserError
from nmt.inference.explanations.neighbors import Index
from nmt.serving.answers import labelled, scored, translated
from nmt.serving.insight import contrasted, explained, neighbors
from nmt.serving.limits import Limits, Pace, Refused
from nmt.serving.measures import Measures
from nmt.serving.request_fields import POSTS, Fields, as_list, parse_body
from nmt.serving.served_models import Models, ServedModel
from nmt.serving.specification import specification

log = logging.getLogger("nmt.serve")
Handler = Callable[[Fields], Awaitable[Any]]
"""Function that computes the response, a JSON value, from the fields of a POST request."""
Responder = Callable[[Request], Awaitable[Response]]
OTHER_TEXTS = ("glossary", "prefix", "required", "forbidden", "translation", "translations")
"""Names of the request fields besides `q` that contain texts, to which the limits apply."""
BODY_SECONDS = 5.0
"""Seconds within which a request body must arrive, so that slow clients do not block the server."""
PAGES = Path(__file__).parent
PAGE_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
"""File and content type for each URL path of the web page."""
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
}
"""HTTP headers of the web page, which loads nothing from other servers."""


class Server:
    """HTTP server for translation models and classifiers.

    models: served translators and classifiers
    limits: request limits
    show_texts: whether to log the texts of requests
    index: index of training sentences for /neighbors; None for no index
    """

    def __init__(
        self,
        models: Models,
        limits: Limits,
        *,
        show_texts: bool = False,
        index: Index | None = None,
    ) -> None:
        self.models = models
        self.limits = limits
        self.show_texts = show_texts
        self.index = index
        self.pace = Pace(limits.per_minute)
        self.measures = Measures()
        self._open = 0

    def app(self, *, origins: Sequence[str] = (), reload: float = 0.0) -> Starlette:
        """Returns the ASGI application.

        origins: origins of other sites whose pages may send requests (CORS)
        reload: seconds between checks for newer checkpoints; 0 disables the checks
        """
        posts: dict[str, Handler] = {
            "/translate": partial(translated, self.models),
            "/detect": self.detect,
            "/classify": self.classify,
            "/score": partial(self._translator_answer, scored),
            "/explain": partial(self._translator_answer, explained),
            "/contrast": partial(self._translator_answer, contrasted),
            "/neighbors": partial(self._translator_answer, partial(neighbors, index=self.index)),
        }
        gets: dict[str, Callable[[], Any]] = {
            "/languages": self.languages,
            "/models": self.names,
            "/health": self.health,
            "/frontend/settings": self.settings,
            "/openapi.json": partial(specification, self.limits),
        }
        responders: dict[str, Responder] = {
            "/metrics": self._metrics,
            **{path: partial(_page, *file) for path, file in PAGE_FILES.items()},
            **{path: partial(_value, value) for path, value in gets.items()},
            **{path: partial(self._answer, path, handler) for path, handler in posts.items()},
        }
        cross_origin = Middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"]
        )
        handlers: Any = {HTTPException: self._http_error, Exception: _server_error}
        return Starlette(
            routes=[
                Route(
                    path,
                    partial(self._measured, responder),
                    methods=["POST" if path in posts else "GET"],
                )
                for path, responder in responders.items()
            ],
            middleware=[cross_origin] if origins else [],
            lifespan=partial(self._watching, reload),
            exception_handlers=handlers,
        )

    @contextlib.asynccontextmanager
    async def _watching(self, reload: float, _: Starlette) -> AsyncIterator[None]:
        """Context manager that checks for newer checkpoints every `reload` seconds."""
        watcher = asyncio.create_task(self.models.watch(reload))
        yield
        watcher.cancel()  # the server stops

    async def _measured(self, respond: Responder, request: Request) -> Response:
        """Returns the response to a request, with errors in LibreTranslate's form.

        Counts the request for the metrics, and logs it without texts.
        """
        start = time.monotonic()
        try:
            response = await respond(request)
        except Refused as refused:
            response = JSONResponse({"error": refused.message}, refused.status)
            if refused.retry_after is not None:
                response.headers["Retry-After"] = str(refused.retry_after)
        seconds = time.monotonic() - start
        path = request.url.path
        self.measures.count_request(path, response.status_code, seconds)
        log.debug("%s %s %s in %.3f s", request.method, path, response.status_code, seconds)
        return response

    async def _answer(self, path: str, handler: Handler, request: Request) -> Response:
        """Reads a request, checks the limits and returns the response."""
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        host = request.client.host if request.client else ""
        # A key in the header is checked before the body is read. A key in the body has precedence.
        if key:
            self._check_key(key, host)
        values = await _values(request, self.limits.bytes)
        key = values.get("api_key") or key
        key = key if isinstance(key, str) else ""
        self._check_key(key, host)
        self.pace.take(key if self.limits.keys else host)
        fields = POSTS[path].checked(values)
        self._check_sizes(fields)
        if self.show_texts:
            log.info("request: %s", json.dumps(fields, ensure_ascii=False))
        # Count open requests after reading the body, so that slow clients do not block others.
        if self._open >= self.limits.open:
            raise Refused(503, f"server busy: {self._open:,} open requests", retry_after=1)
        self._open += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                return JSONResponse(await handler(fields))
        except TimeoutError:
            raise Refused(
                503, f"no result within {self.limits.seconds:g} seconds", retry_after=5
            ) from None
        except (UserError, ValueError) as error:
            # Invalid values and unsatisfiable constraints are errors of the request.
            raise Refused(400, str(error)) from error
        finally:
            self._open -= 1  # also counted after an error

    def _check_sizes(self, fields: Fields) -> None:
        """Counts the texts in `q` for the metrics; raises Refused if a field exceeds the limits."""
        texts = as_list(fields["q"])
        self.measures.count_texts(texts)
        self.limits.check_texts(texts, "q")
        others: list[Any] = [*fields.get("glossary", {}).values()]
        for name in OTHER_TEXTS:
            # Iteration over a glossary yields its source words.
            others += as_list(fields.get(name, ""))
        others = [text for text in others if isinstance(text, str) and text]
        self.limits.check_texts(others, ", ".join(OTHER_TEXTS))

    def _check_key(self, key: str, host: str) -> None:
        """Raises Refused for an invalid API key, and counts the attempt as a request by the
        host."""
        try:
            self.limits.check_key(key)
        except Refused:
            self.pace.take(host)
            raise

    async def detect(self, _: Fields) -> Any:
        codes = ", ".join(self.models.languages) or "none"
        raise Refused(400, f"this server does not detect languages; source languages: {codes}")

    async def classify(self, fields: Fields) -> Any:
        return await self._in_pool(labelled, self.models.classifier(fields["model"]), fields)

    async def _translator_answer(self, work: Callable[..., Any], fields: Fields) -> Any:
        served = self.models.translator(fields["source"], fields["target"], fields["model"])
        return await self._in_pool(work, served, fields)

    async def _in_pool(
        self, work: Callable[..., Any], served: ServedModel[Any], fields: Fields
    ) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(served.pool, partial(work, served, fields))

    def languages(self) -> list[dict[str, Any]]:
        """Returns all languages, each with its target languages."""
        targets = self.models.languages
        codes = {*targets, *(code for codes in targets.values() for code in codes)}
        return [
            {**language_of_code(code), "targets": targets.get(code, [])} for code in sorted(codes)
        ]

    def settings(self) -> dict[str, Any]:
        """Returns the settings that LibreTranslate's web page reads."""
        source = next(iter(self.models.languages), "")
        target = next(iter(self.models.languages.get(source, [])), "")
        return {
            "apiKeys": bool(self.limits.keys),
            "keyRequired": bool(self.limits.keys),
            "neighbors": self.index is not None,
            "charLimit": self.limits.characters,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "suggestions": False,
            "supportedFilesFormat": [],
            "language": {"source": language_of_code(source), "target": language_of_code(target)},
        }

    def health(self) -> dict[str, Any]:
        """Returns the status of the server and of each model."""
        return {
            "status": "ok",
            "models": {served.name: served.status for served in self.models.all},
        }

    def names(self) -> list[dict[str, Any]]:
        """Returns the name, languages and capabilities of each model."""
        models = []
        for served in self.models.translators:
            source, target = served.model.languages
            attends = served.model.attends
            model = {"name": served.name, "source": source, "target": target, "attention": attends}
            models.append(model)
        return models + [
            {"name": served.name, "labels": True} for served in self.models.classifiers
        ]

    async def _metrics(self, _: Request) -> Response:
        return Response(self.measures.text(self._open), media_type="text/plain; version=0.0.4")

    async def _http_error(self, request: Request, error: HTTPException) -> Response:
        """Returns the response for an unknown path or an unsupported method."""
        # Unknown paths share one metrics label, because their number is unlimited.
        path = request.url.path if "endpoint" in request.scope else "other"
        self.measures.count_request(path, error.status_code, 0.0)
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _values(request: Request, max_bytes: int) -> Fields:
    """Returns the fields in the body of a request.

    Raises Refused if the body is too large, arrives too slowly, or is neither JSON nor a form.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "multipart/form-data":
        raise Refused(
            415,
            "content type multipart/form-data is not supported; "
            "send application/json or application/x-www-form-urlencoded",
        )
    too_large = f"the body is larger than {max_bytes:,} bytes"
    length = request.headers.get("content-length", "0")
    # Check the header and the received bytes: a chunked body has no Content-Length.
    if not length.isdecimal() or int(length) > max_bytes:
        raise Refused(413, too_large)
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise Refused(413, too_large)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None
    return parse_body(body, content_type)


async def _value(value: Callable[[], Any], _: Request) -> Response:
    return JSONResponse(value())


async def _page(name: str, media_type: str, _: Request) -> Response:
    return Response((PAGES / name).read_bytes(), media_type=media_type, headers=PAGE_HEADERS)


async def _server_error(_: Request, error: Exception) -> Response:
    log.error("internal server error: %r", error, exc_info=error)
    return JSONResponse({"error": "internal server error (see the server log)"}, 500)


def language_of_code(code: str) -> dict[str, str]:
    """Returns the code and the English name of a language."""
    from babel import Locale, UnknownLocaleError

    try:
        name = Locale.parse(code, sep="-" if "-" in code else "_").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        name = code
    return {"code": code, "name": name}
