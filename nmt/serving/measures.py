"""Prometheus metrics of the server: requests, texts, batches and models, and of its processes."""

import os
from collections.abc import Iterable, Sequence
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

from nmt.foundation.processes import is_running

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder in which several processes add up their metrics."""
BATCH_SIZES = [2**power for power in range(10)]
"""Upper bounds of the histogram of batch sizes, in sentences."""


class Measures:
    """Prometheus counters, gauges and histograms of the server."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        registry.register(_Processes())
        self._registry = registry
        self._requests = Counter(
            "nmt_requests", "Requests answered", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "nmt_seconds", "Seconds from request to response", ["path"], registry=registry
        )
        self._texts = Counter("nmt_texts", "Texts in requests", registry=registry)
        self._characters = Counter(
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
            buckets=BATCH_SIZES,
        )
        self.reloads = Counter(
            "nmt_reloads",
            "Newer checkpoints, loaded or refused",
            ["model", "result"],
            registry=registry,
        )

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_texts(self, texts: Sequence[str]) -> None:
        self._texts.inc(len(texts))
        self._characters.inc(sum(map(len, texts)))

    def text(self) -> bytes:
        """Returns the metrics of all server processes in the text format of Prometheus."""
        registry = self._registry
        if SHARED in os.environ:
            registry = CollectorRegistry()
            registry.register(_Processes())
            MultiProcessCollector(registry)
        return generate_latest(registry)


class _Processes(Collector):
    """CPU time, memory, open files and start time of each server process, with the label `pid`."""

    def collect(self) -> Iterable[Metric]:
        metrics: dict[str, Metric] = {}
        for number in _process_ids():
            collector = ProcessCollector(pid=partial(int, number), registry=None)
            for metric in collector.collect():
                merged = Metric(metric.name, metric.documentation, metric.type)
                merged = metrics.setdefault(metric.name, merged)
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
