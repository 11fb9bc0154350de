"""The server: LibreTranslate's requests and answers over HTTP, and more in the same style. See README.md beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
from nmt.serving.questions import Question, name_of, text_of, texts_of
from nmt.serving.served_models import Models
from nmt.serving.specification import specification

log = logging.getLogger("nmt.serve")
Answer = Callable[[Mapping[str, Any]], Awaitable[Any]]
PAGES = Path(__file__).parent
GUARDED = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
}
"""The page loads nothing from elsewhere."""


class Server:
    """Answers requests. `show_texts`: texts may stand in the log."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        *,
        show_texts: bool = False,
        index: Index | None = None,
    ) -> None:
        self.models, self.limits, self.show_texts, self.index = models, limits, show_texts, index
        self.pace, self.measures, self._open = Pace(limits.per_minute), Measures(), 0

    # What can be asked

    async def translate(self, fields: Mapping[str, Any]) -> Any:
        return await translated(self.models, Question.of(fields, self.limits))

    async def detect(self, fields: Mapping[str, Any]) -> Any:
        texts_of(fields, "q")
        known = ", ".join(self.models.languages) or "none"
        raise Refused(400, f"this server does not detect languages; it translates from {known}")

    async def score(self, fields: Mapping[str, Any]) -> Any:
        """The probabilities of given translations."""
        (sources, single), (targets, _) = texts_of(fields, "q"), texts_of(fields, "translation")
        self.limits.check_texts([*sources, *targets])
        if len(sources) != len(targets):
            raise Refused(
                400, f"q has {len(sources)} texts, translation {len(targets)}: give as many"
            )
        served = self.models.translator(
            text_of(fields, "source"), text_of(fields, "target"), name_of(fields)
        )
        work = partial(scored, served, sources, targets)
        found = await asyncio.get_running_loop().run_in_executor(served.pool, work)
        return {"scores": found[0] if single else found}

    async def explain(self, fields: Mapping[str, Any]) -> Any:
        return await self._looked_into(explained, fields)

    async def contrast(self, fields: Mapping[str, Any]) -> Any:
        return await self._looked_into(contrasted, fields)

    async def neighbors(self, fields: Mapping[str, Any]) -> Any:
        return await self._looked_into(partial(neighbors, index=self.index), fields)

    async def _looked_into(self, work: Callable[..., Any], fields: Mapping[str, Any]) -> Any:
        served = self.models.translator(
            text_of(fields, "source"), text_of(fields, "target"), name_of(fields)
        )
        call = partial(work, served, fields, self.limits)
        return await asyncio.get_running_loop().run_in_executor(served.pool, call)

    async def classify(self, fields: Mapping[str, Any]) -> Any:
        texts, single = texts_of(fields, "q")
        self.limits.check_texts(texts)
        served = self.models.classifier(name_of(fields))
        found = await asyncio.get_running_loop().run_in_executor(
            served.pool, partial(labelled, served, texts)
        )
        return {"classes": found[0] if single else found}

    def languages(self) -> list[dict[str, Any]]:
        every, found = self.models.languages, list[dict[str, Any]]()
        for code in sorted({*every, *(target for targets in every.values() for target in targets)}):
            found.append({"code": code, "name": _name(code), "targets": every.get(code, [])})
        return found

    def settings(self) -> dict[str, Any]:
        """What LibreTranslate tells its own page."""
        source = next(iter(self.models.languages), "")
        target = next(iter(self.models.languages.get(source, [])), "")
        return {
            "apiKeys": bool(self.limits.keys), "keyRequired": bool(self.limits.keys),
            "neighbors": self.index is not None, "charLimit": self.limits.characters,
            "filesTranslation": False, "frontendTimeout": 500, "suggestions": False, "supportedFilesFormat": [],
            "language": {
                side: {"code": code, "name": _name(code)} for side, code in (("source", source), ("target", target))
            },
        }  # fmt: skip

    # How it is asked

    async def _answer(self, request: Request, answer: Answer) -> Response:
        """Reads a request, keeps the limits, answers."""
        if self._open >= self.limits.open:
            raise Refused(503, f"{self._open:,} requests are open already", retry_after=1)
        self._open += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                fields = await _fields(request, self.limits.bytes)
                key = fields.get("api_key") or request.headers.get(
                    "authorization", ""
                ).removeprefix("Bearer ")
                self._admit(
                    key if isinstance(key, str) else "",
                    request.client.host if request.client else "",
                )
                if self.show_texts:
                    log.info(
                        "asked: %s",
                        json.dumps(
                            {k: v for k, v in fields.items() if k != "api_key"}, ensure_ascii=False
                        ),
                    )
                self.measures.texts(fields.get("q"))
                return _json(await answer(fields))
        except TimeoutError:
            raise Refused(
                503, f"not answered within {self.limits.seconds:g} seconds", retry_after=5
            ) from None
        except (UserError, ValueError) as error:  # constraints that cannot be kept
            raise Refused(400, str(error)) from error
        finally:
            self._open -= 1

    def _admit(self, key: str, host: str) -> None:
        """Counts a request of a key, or of a host. Raises Refused for a wrong key, and for too many of either."""
        try:
            self.limits.check_key(key)
        except Refused:
            self.pace.take(host)
            raise
        self.pace.take(key if self.limits.keys else host)

    async def counted(
        self, request: Request, reply: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """The response to a request; refusals become LibreTranslate's errors. Logged without what was asked."""
        began, path = time.monotonic(), request.url.path
        try:
            response = await reply(request)
        except Refused as refused:
            response = _error(refused.status, refused.message)
            if refused.retry_after is not None:
                response.headers["Retry-After"] = str(refused.retry_after)
        seconds = time.monotonic() - began
        self.measures.request(path, response.status_code, seconds)
        log.debug("%s %s %s in %.0f ms", request.method, path, response.status_code, 1000 * seconds)
        return response

    def app(self, *, origins: Sequence[str] = (), reload: float = 0.0) -> Starlette:
        """The ASGI application. `origins`: pages of which other sites may ask; `reload`: seconds between looks for newer
        checkpoints (0: never)."""

        @contextlib.asynccontextmanager
        async def watching(_: Starlette) -> AsyncIterator[None]:
            task = asyncio.create_task(self.models.watch(reload)) if reload else None
            yield
            if task is not None:
                task.cancel()

        def route(
            path: str, reply: Callable[[Request], Awaitable[Response]], *methods: str
        ) -> Route:
            async def endpoint(request: Request) -> Response:
                return await self.counted(request, reply)

            return Route(path, endpoint, methods=list(methods) or ["GET"])

        def asked(path: str, answer: Answer) -> Route:
            return route(path, lambda request: self._answer(request, answer), "POST")

        def told(path: str, value: Callable[[], Any]) -> Route:
            async def reply(_: Request) -> Response:
                return _json(value())

            return route(path, reply)

        def file(name: str, kind: str) -> Route:
            async def reply(_: Request) -> Response:
                return Response((PAGES / name).read_bytes(), media_type=kind, headers=GUARDED)

            return route("/" if name == "page.html" else f"/{name}", reply)

        async def metrics(_: Request) -> Response:
            return Response(self.measures.text(self._open), media_type="text/plain; version=0.0.4")

        routes = [
            file("page.html", "text/html"), file("page.css", "text/css"), file("page.js", "text/javascript"),
            route("/metrics", metrics),
            asked("/translate", self.translate), asked("/detect", self.detect),
            asked("/score", self.score), asked("/classify", self.classify),
            asked("/explain", self.explain), asked("/contrast", self.contrast), asked("/neighbors", self.neighbors),
            told("/languages", self.languages), told("/health", lambda: {"status": "ok"}),
            told("/frontend/settings", self.settings), told("/models", self._models),
            told("/openapi.json", lambda: specification(self.limits)),
        ]  # fmt: skip
        middleware = [
            Middleware(
                CORSMiddleware,
                allow_origins=list(origins),
                allow_methods=["*"],
                allow_headers=["*"],
            )
        ]
        return Starlette(
            routes=routes,
            middleware=middleware if origins else [],
            lifespan=watching,
            exception_handlers={HTTPException: self._http_error, Exception: _fault},  # type: ignore[dict-item]
        )

    async def _http_error(self, request: Request, error: HTTPException) -> Response:
        """No such path, or not by this method."""
        self.measures.request(request.url.path, error.status_code, 0.0)
        response = _error(error.status_code, error.detail)
        response.headers.update(error.headers or {})
        return response

    def _models(self) -> list[dict[str, Any]]:
        translators = [
            {
                "name": one.name,
                "source": one.languages[0],
                "target": one.languages[1],
                "attention": one.translator.attends,
            }
            for one in self.models.translators
        ]
        return [
            *translators,
            *({"name": one.name, "labels": True} for one in self.models.classifiers),
        ]


async def _fields(request: Request, most: int) -> Mapping[str, Any]:
    """The fields of a request's body, JSON or a form. Raises Refused if it is too large, or neither."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        raise Refused(415, "send application/json or application/x-www-form-urlencoded")
    length = request.headers.get("content-length", "0")
    body = b""
    if length.isdecimal() and int(length) <= most:
        async for part in request.stream():
            body += part
            if len(body) > most:
                break
    if len(body) > most or not length.isdecimal() or int(length) > most:
        raise Refused(413, f"the body is larger than {most:,} bytes")
    try:
        text = body.decode()
        if kind == "application/x-www-form-urlencoded":
            pairs = urllib.parse.parse_qs(text, keep_blank_values=True, errors="strict")
            return {
                name: values[0] if len(values) == 1 else values for name, values in pairs.items()
            }
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(
            400, f"Invalid request: the body is not understood ({type(error).__name__})"
        ) from None
    if not isinstance(fields, dict):
        raise Refused(400, "Invalid request: the body must be a JSON object")
    return fields


def _json(value: Any) -> Response:
    return Response(
        json.dumps(value, ensure_ascii=False, allow_nan=False), media_type="application/json"
    )


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


async def _fault(_: Request, error: Exception) -> Response:
    log.error("a fault of the server: %r", error, exc_info=error)
    return _error(500, "a fault of the server; it is in its log")


def _name(code: str) -> str:
    """A language by its English name."""
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code, sep="-" if "-" in code else "_").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code
