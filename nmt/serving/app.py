"""ASGI application with LibreTranslate's HTTP API and additional fields and paths.

nmt/serving/README.md describes the API.
"""

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from nmt.data import as_list
from nmt.inference.explanations.explanation import can_attend_to
from nmt.inference.explanations.neighbors import Index
from nmt.inference.model_facts import SIDES
from nmt.serving.answers import labelled, scored, translated
from nmt.serving.explanation_answers import contrasted, explained, neighbors
from nmt.serving.http_server import stopping
from nmt.serving.limits import Limits, Pace, Refused
from nmt.serving.monitoring import AccessLog, ServerMetrics
from nmt.serving.openapi import specification
from nmt.serving.request_fields import POSTS, Fields, parse_body
from nmt.serving.served_models import Models, ServedModel

log = logging.getLogger("nmt.serve")
Handler = Callable[[Fields], Coroutine[Any, Any, Any]]
"""Function that computes the response, a JSON value, from the fields of a POST request."""
Responder = Callable[[Request], Awaitable[Response]]
OTHER_TEXTS = ("glossary", "prefix", "required", "forbidden", "translation", "translations")
"""Names of the request fields besides `q` that contain texts, to which the limits apply."""
BODY_SECONDS = 5.0
"""Seconds within which a request body must arrive, so that slow clients do not block the server."""
GONE = Refused(499, "the client closed the connection")
"""Outcome of a request whose client has disconnected; status 499, as in the logs of nginx."""
PAGES = Path(__file__).parent
PAGE_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{
        f"/page/{script.name}": (f"page/{script.name}", "text/javascript")
        for script in sorted((PAGES / "page").glob("*.js"))
    },
}
"""File and content type for each URL path of the web page."""
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
}
"""HTTP headers of the web page; they prevent the page from loading files from other servers."""


class Server:
    """HTTP server for translation models and classifiers.

    models: served translators and classifiers
    limits: request limits
    metrics: metrics of the server
    show_texts: whether to log the texts of requests
    index: index of training sentences for /neighbors; None disables /neighbors
    guard_metrics: whether /metrics needs an API key
    """

    def __init__(
        self,
        models: Models,
        limits: Limits,
        metrics: ServerMetrics,
        *,
        show_texts: bool = False,
        index: Index | None = None,
        guard_metrics: bool = False,
    ) -> None:
        self.models = models
        self.limits = limits
        self.show_texts = show_texts
        self.index = index
        self.guard_metrics = guard_metrics
        self.pace = Pace(limits.per_minute)
        self.metrics = metrics
        self._stopping = asyncio.Event()
        self._slots = asyncio.Semaphore(limits.open)  # free places for open requests

    def app(
        self, *, origins: Sequence[str] = (), reload: float = 0.0, drain: float = 0.0
    ) -> ASGIApp:
        """Returns the ASGI application.

        origins: origins of other sites whose pages may send requests (CORS)
        reload: seconds between checks for newer checkpoints; 0 disables the checks
        drain: seconds for which the server keeps answering after SIGTERM; /ready returns status 503
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
            "/ready": self._ready,
            **{path: partial(_page, *file) for path, file in PAGE_FILES.items()},
            **{path: partial(_value, value) for path, value in gets.items()},
            **{path: partial(self._answer, path, handler) for path, handler in posts.items()},
        }
        cross_origin = Middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"]
        )
        handlers: Any = {HTTPException: self._refused, Exception: _server_error}
        app = Starlette(
            routes=[
                Route(path, responder, methods=["POST" if path in posts else "GET"])
                for path, responder in responders.items()
            ],
            middleware=[cross_origin] if origins else [],
            lifespan=partial(self._running, reload, drain),
            exception_handlers=handlers,
        )
        # A redirection would lose the path prefix and the https:// of a proxy.
        app.router.redirect_slashes = False
        return AccessLog(app, self.metrics, responders.keys(), self._stopping.is_set)

    @contextlib.asynccontextmanager
    async def _running(self, reload: float, drain: float, _: Starlette) -> AsyncIterator[None]:
        """Context manager that checks for newer checkpoints and delays the server's shutdown."""
        watcher = asyncio.create_task(self.models.watch(reload))
        with stopping(drain, self._stopping.set):
            yield
        watcher.cancel()

    async def _refused(self, _: Request, error: HTTPException) -> Response:
        """Returns the JSON response for a refused request, an unknown path or an unsupported HTTP
        method, in LibreTranslate's format."""
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    async def _answer(self, path: str, handler: Handler, request: Request) -> Response:
        """Reads a POST request, checks the limits, and returns the response."""
        key = _key_in_header(request)
        address = _address(request)
        # A wrong key in the header is refused before the body is read. Of two valid keys, that in
        # the body counts.
        if key:
            self._check_key(key, address)
        values = await _values(request, self.limits.bytes)
        key = str(values.get("api_key") or key)
        self._check_key(key, address)
        self.pace.take(key if self.limits.keys else address)
        fields = POSTS[path].checked(values)
        self._check_sizes(fields)
        if self.show_texts:
            log.info("request: %s", json.dumps(fields, ensure_ascii=False))
        # Count open requests after reading the body, so that slow clients do not block others.
        self._check_load()
        try:
            with self.metrics.open.track_inprogress():
                async with self._slots, asyncio.timeout(self.limits.seconds):
                    return JSONResponse(await _unless_gone(request, handler(fields)))
        except TimeoutError:
            raise self._overload(f"no result within {self.limits.seconds:g} seconds") from None
        except ValueError as error:
            # Invalid values and unsatisfiable constraints are errors of the request.
            raise Refused(400, str(error)) from error

    def _check_load(self) -> None:
        """Raises Refused if too many requests are open, or the queue is expected to need more time
        than a request may take."""
        if self._slots.locked():
            raise self._overload(f"server busy: {self.limits.open:,} open requests")
        expected = self.models.expected_seconds
        if expected > self.limits.seconds:
            raise self._overload(f"server busy: the queue needs {expected:.0f} seconds")

    def _overload(self, message: str) -> Refused:
        """Returns a refusal with status 503. Its header Retry-After contains the expected seconds
        until the queue is empty, at least 1."""
        return Refused(
            503, message, {"Retry-After": str(max(1, math.ceil(self.models.expected_seconds)))}
        )

    def _check_sizes(self, fields: Fields) -> None:
        """Counts the texts in `q` for the metrics; raises Refused if a field exceeds the limits."""
        texts = as_list(fields["q"])
        self.metrics.texts.inc(len(texts))
        self.metrics.characters.inc(sum(map(len, texts)))
        for name in ("q", *OTHER_TEXTS):
            value = fields.get(name, "")
            if isinstance(value, dict):
                value = [*value, *value.values()]
            values = [value] if isinstance(value, str) else value
            self.limits.check_texts([text for text in values if isinstance(text, str)], name)

    def _check_key(self, key: str, address: str) -> None:
        """Raises Refused for an invalid API key, and counts the attempt towards the rate limit of
        the client's address."""
        try:
            self.limits.check_key(key)
        except Refused:
            self.pace.take(address)
            raise

    async def detect(self, _: Fields) -> Any:
        codes = ", ".join(self.models.languages) or "none"
        raise Refused(
            400, f"this server does not detect languages; set source (available: {codes})"
        )

    async def classify(self, fields: Fields) -> Any:
        return await self._in_pool(labelled, self.models.classifier(fields["model"]), fields)

    async def _translator_answer(self, work: Callable[..., Any], fields: Fields) -> Any:
        served = self.models.translator(fields["source"], fields["target"], fields["model"])
        return await self._in_pool(work, served, fields)

    async def _in_pool(
        self, work: Callable[..., Any], served: ServedModel[Any], fields: Fields
    ) -> Any:
        return await asyncio.get_running_loop().run_in_executor(
            served.pool, partial(work, served, fields)
        )

    def languages(self) -> list[dict[str, Any]]:
        """Returns the languages of all models, each with the languages into which it can be
        translated.
        """
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
            "textLimit": self.limits.texts,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "suggestions": False,
            "supportedFilesFormat": [],
            "language": {"source": language_of_code(source), "target": language_of_code(target)},
        }

    def health(self) -> dict[str, Any]:
        """Returns the response to /health: the status of the server and of each model."""
        return {
            "status": "ok",
            "models": {served.name: served.status for served in self.models.all},
        }

    def names(self) -> list[dict[str, Any]]:
        """Returns the response to /models: name, languages and other facts of each model."""
        translators = [
            {
                "name": served.name,
                "source": served.model.languages[0],
                "target": served.model.languages[1],
                "attention": served.model.attends,
                "attend_to": can_attend_to(served.model),
                "neighbors": self.index is not None
                and self.index.model == served.model.encoder_hash,
                **served.facts,
            }
            for served in self.models.translators
        ]
        return translators + [
            {"name": served.name, "labels": True, **served.facts}
            for served in self.models.classifiers
        ]

    async def _metrics(self, request: Request) -> Response:
        if self.guard_metrics:
            self._check_key(_key_in_header(request), _address(request))
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _ready(self, _: Request) -> Response:
        """Returns status 200 if the server accepts requests, 503 after SIGTERM."""
        if self._stopping.is_set():
            raise Refused(503, "the server is shutting down")
        return JSONResponse({"status": "ready"})


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _key_in_header(request: Request) -> str:
    """Returns the key of a Bearer header, or an empty text; a proxy may add other schemes."""
    header = request.headers.get("authorization", "")
    return header[7:].strip() if header[:7].lower() == "bearer " else ""


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Returns the result of a coroutine. If the client disconnects, cancels the coroutine and
    raises `GONE`.

    request: request of the client, whose body has been read
    """
    task = asyncio.create_task(work)
    # After the body, the next message is the end of the connection.
    disconnected = asyncio.ensure_future(request.receive())
    disconnected.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    except asyncio.CancelledError:
        if disconnected.done():
            raise GONE from None
        raise
    finally:
        disconnected.cancel()


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
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise Refused(413, f"the request body is larger than {max_bytes:,} bytes")
    except ClientDisconnect:
        raise GONE from None
    except TimeoutError:
        raise Refused(
            408, f"the request body did not arrive within {BODY_SECONDS:g} seconds"
        ) from None
    return parse_body(body, content_type)


async def _value(value: Callable[[], Any], _: Request) -> Response:
    return JSONResponse(value())


async def _page(name: str, media_type: str, _: Request) -> Response:
    return Response((PAGES / name).read_bytes(), media_type=media_type, headers=PAGE_HEADERS)


async def _server_error(_: Request, error: Exception) -> Response:
    log.error("internal server error: %r", error, exc_info=error)
    return JSONResponse({"error": "internal server error (see the server log)"}, 500)


def language_of_code(code: str) -> dict[str, str]:
    """Returns the code and the English name of a language. Usual names of the sides of a parallel
    text, such as src, are no codes."""
    from babel import Locale, UnknownLocaleError

    name = None
    if code not in SIDES:
        with contextlib.suppress(UnknownLocaleError, ValueError):
            name = Locale.parse(code, sep="-" if "-" in code else "_").get_display_name("en")
    return {"code": code, "name": name or code}
