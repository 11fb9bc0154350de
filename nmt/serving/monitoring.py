"""Monitoring of the server: Prometheus metrics of requests, texts, batches, models and processes,
and the access log.

An ASGI middleware gives each request an id, logs it, and counts it for the metrics.
"""

import contextlib
import logging
import os
import re
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.foundation.processes import is_running

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder in which several processes add up their metrics."""


class ServerMetrics:
    """Prometheus counters, gauges and histograms of the server."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        registry.register(_Processes())
        self._registry = registry
        self.requests = Counter(
            "nmt_requests", "Requests answered", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "nmt_seconds", "Seconds from request to response", ["path"], registry=registry
        )
        self.texts = Counter("nmt_texts", "Texts in requests", registry=registry)
        self.characters = Counter(
            "nmt_characters", "Characters of texts in requests", registry=registry
        )
        # `livesum` adds up the values of the running processes.
        self.open = Gauge(
            "nmt_open_requests",
            "Requests in progress",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.queue = Gauge(
            "nmt_queue_sentences",
            "Sentences that wait for a batch",
            ["model"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.batches = Histogram(
            "nmt_batch_sentences",
            "Sentences in a batch",
            ["model"],
            registry=registry,
            buckets=[2**power for power in range(10)],  # upper bounds, in sentences
        )
        self.reloads = Counter(
            "nmt_reloads",
            "Newer checkpoints, loaded or refused",
            ["model", "result"],
            registry=registry,
        )

    def text(self) -> bytes:
        """Returns the metrics of all server processes in the text format of Prometheus."""
        registry = self._registry
        if SHARED in os.environ:
            registry = CollectorRegistry()
            registry.register(_Processes())
            MultiProcessCollector(registry)
        # A process that starts creates an empty file, which cannot be read for some microseconds.
        with contextlib.suppress(struct.error):
            return generate_latest(registry)
        time.sleep(0.01)
        return generate_latest(registry)


class _Processes(Collector):
    """CPU time, memory, open files and start time of each server process, with the label `pid`."""

    def collect(self) -> Iterable[Metric]:
        metrics: dict[str, Metric] = {}
        for number in _process_ids():
            for metric in ProcessCollector(pid=partial(int, number), registry=None).collect():
                empty = Metric(metric.name, metric.documentation, metric.type)
                merged = metrics.setdefault(metric.name, empty)
                for sample in metric.samples:
                    merged.add_sample(sample.name, {"pid": str(number)}, sample.value)
        return metrics.values()


def _process_ids() -> list[int]:
    """Returns the ids of the running server processes."""
    folder = os.environ.get(SHARED)
    if folder is None:
        return [os.getpid()]
    # prometheus-client writes a file `counter_ID.db` for each process.
    numbers = {int(file.stem.rpartition("_")[2]) for file in Path(folder).glob("counter_*.db")}
    running = {number for number in numbers if is_running(number)}
    for number in numbers - running:
        mark_process_dead(number, folder)
    return sorted(running)


log = logging.getLogger("nmt.serve.access")
REQUEST_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)
"""Regular expression for accepted values of the header X-Request-ID; other values could forge log
lines."""
TRACE_PARENT = re.compile(r"[\da-f]{2}-([\da-f]{32})-[\da-f]{16}-[\da-f]{2}")
"""Regular expression for the header `traceparent` of W3C Trace Context; group 1 is the trace id."""
PROBES = ("/health", "/ready", "/metrics")
"""Paths that other programs request every few seconds; their access lines have level DEBUG."""


@dataclass(frozen=True)
class AccessLog:
    """ASGI application that logs and counts the requests of another application.

    app: application that answers the requests
    metrics: metrics that count the requests
    paths: paths of the server; the metrics count all other paths as `other`
    is_stopping: function that returns whether the server is shutting down
    """

    app: ASGIApp
    metrics: ServerMetrics
    paths: Set[str]
    is_stopping: Callable[[], bool]

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
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                if self.is_stopping():
                    # The client opens its next connection to another server.
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self._count(scope, status, time.monotonic() - start, request_id)

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        # Unknown paths share one metrics label, because their number is unlimited.
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        fields = {
            "client": scope["client"][0] if scope.get("client") else "-",
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
