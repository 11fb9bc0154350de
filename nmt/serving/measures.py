"""Prometheus metrics of the server: requests, seconds, texts and characters."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Measures:
    """Prometheus counters, gauge and histogram of the server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "nmt_requests", "Requests answered", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "nmt_seconds", "Seconds from request to response", ["path"], registry=self._registry
        )
        self._texts = Counter("nmt_texts", "Texts in requests", registry=self._registry)
        self._characters = Counter(
            "nmt_characters", "Characters of texts in requests", registry=self._registry
        )
        self._open = Gauge("nmt_open_requests", "Requests in progress", registry=self._registry)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_texts(self, texts: Sequence[str]) -> None:
        self._texts.inc(len(texts))
        self._characters.inc(sum(map(len, texts)))

    def text(self, open_requests: int) -> bytes:
        """Returns the server's metrics in the text format of Prometheus."""
        self._open.set(open_requests)
        return generate_latest(self._registry)
