"""Figures of a server for Prometheus: what was asked, how it was answered, how long it took."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PATHS = (
    "/",
    "/translate",
    "/languages",
    "/detect",
    "/score",
    "/classify",
    "/explain",
    "/contrast",
    "/neighbors",
    "/health",
    "/metrics",
    "/frontend/settings",
    "/models",
)


class Measures:
    """Counts of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "nmt_requests", "Requests answered", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "nmt_seconds", "Seconds until the answer", ["path"], registry=self._registry
        )
        self._texts = Counter("nmt_texts", "Texts asked about", registry=self._registry)
        self._characters = Counter(
            "nmt_characters", "Characters of these texts", registry=self._registry
        )
        self._open = Gauge("nmt_open_requests", "Requests being answered", registry=self._registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        shown = path if path in PATHS else "other"
        self._requests.labels(shown, str(status)).inc()
        self._seconds.labels(shown).observe(seconds)

    def texts(self, asked: Any) -> None:
        texts = [
            text
            for text in (asked if isinstance(asked, list) else [asked])
            if isinstance(text, str)
        ]
        self._texts.inc(len(texts))
        self._characters.inc(sum(map(len, texts)))

    def text(self, open_requests: int) -> bytes:
        """In Prometheus' text format."""
        self._open.set(open_requests)
        return generate_latest(self._registry)
