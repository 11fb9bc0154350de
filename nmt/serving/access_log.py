"""ASGI middleware that gives each request an id, logs it, and counts it for the metrics."""

import logging
import re
import time
import uuid
from collections.abc import Set

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.serving.measures import Measures

log = logging.getLogger("nmt.serve.access")
REQUEST_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)
"""Accepted values of the header X-Request-ID; other values could forge lines of the log."""
TRACE_PARENT = re.compile(r"[\da-f]{2}-([\da-f]{32})-[\da-f]{16}-[\da-f]{2}")
"""Header `traceparent` of W3C Trace Context; its group is the trace id."""
PROBES = ("/health", "/ready", "/metrics")
"""Paths that other programs request every few seconds; their access lines have level DEBUG."""


class AccessLog:
    """ASGI application that logs and counts the requests of another application.

    app: application that answers the requests
    measures: metrics that count the requests
    paths: paths of the server; the metrics count all other paths as `other`
    """

    def __init__(self, app: ASGIApp, measures: Measures, paths: Set[str]) -> None:
        self.app = app
        self.measures = measures
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start = time.monotonic()
        request_id = request_id_of(Headers(scope=scope))
        status = 500  # unless a response begins

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self._count(scope, status, time.monotonic() - start, request_id)

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        # Unknown paths share one metrics label, because their number is unlimited.
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.measures.count_request(path, status, seconds)
        client = scope["client"][0] if scope.get("client") else "-"
        fields = {
            "client": client,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "seconds": round(seconds, 3),
            "request_id": request_id,
        }
        level = logging.DEBUG if path in PROBES else logging.INFO
        # With log=json, the fields are keys of the line.
        log.log(level, "%s %s %r %s %.3f s, id %s", *fields.values(), extra={"fields": fields})


def request_id_of(headers: Headers) -> str:
    """Returns the id of a request: its header X-Request-ID, the trace id of its header
    traceparent, or a random id."""
    stated = headers.get("x-request-id", "")
    if REQUEST_ID.fullmatch(stated):
        return stated
    trace = TRACE_PARENT.fullmatch(headers.get("traceparent", ""))
    return trace[1] if trace else uuid.uuid4().hex
