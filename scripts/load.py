"""Measures the server under load.

    python scripts/load.py RUN_DIR FILE [search=greedy …] [--seconds 20]
    python scripts/load.py RUN_DIR FILE --soak 1200 [--connections 16]

FILE has one sentence per line; each is one request. Measures, with 1, 8 and 64 connections without a pause, the time
until the answer (median, 95 and 99 per cent), requests per second against a server that translates one sentence at a
time, and the memory of the server. With --soak SECONDS, measures only its memory, every minute, under requests of all
kinds: texts, lists, HTML, alignments, alternatives, glossaries, explanations, contrasts. Figures are in README.md
beside this file.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import psutil


class Server:
    """`nmt.serve` in a process of its own."""

    def __init__(self, model: str, overrides: list[str]) -> None:
        command = [
            sys.executable,
            "-m",
            "nmt.serve",
            f"model={model}",
            "port=0",
            "max_open=1000",
            *overrides,
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.address = next(
            "http" + line.split("http", 1)[1].strip()
            for line in self.process.stderr
            if "http://" in line
        )
        result = httpx2.get(f"{self.address}/models").json()[0]
        self.languages = {"source": result["source"], "target": result["target"]}

    @property
    def memory(self) -> float:
        """Resident megabytes."""
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate()


def anything(draw: random.Random, lines: list[str]) -> tuple[str, dict[str, Any]]:
    """A path and the fields of some request."""
    line, other = draw.choice(lines), draw.choice(lines)
    word = draw.choice(line.split() or ["x"])
    return draw.choice([
        ("/translate", {"q": line}),
        ("/translate", {"q": draw.choices(lines, k=draw.randrange(1, 20))}),
        ("/translate", {"q": f"<p>{line}</p><ul><li><b>{word}</b> {other}</li></ul>", "format": "html"}),
        ("/translate", {"q": f"{line}\n{other}", "alignment": True, "attention": True, "scores": True}),
        ("/translate", {"q": line, "alternatives": 3, "glossary": {word: word}}),
        ("/explain", {"q": line}),
        ("/contrast", {"q": line, "translations": [line, other]}),
        ("/score", {"q": line, "translation": other}),
    ])  # fmt: skip


def ask(
    server: Server, lines: list[str], connections: int, seconds: float, mixed: bool = False
) -> list[float]:
    """Seconds of each request, which are `mixed`, or one sentence each; raises if one is not answered."""
    times: list[list[float]] = [[] for _ in range(connections)]
    until = time.monotonic() + seconds

    def one(number: int) -> None:
        draw = random.Random(number)
        with httpx2.Client(timeout=120) as client:
            while time.monotonic() < until:
                began = time.monotonic()
                path, fields = (
                    anything(draw, lines) if mixed else ("/translate", {"q": draw.choice(lines)})
                )
                answer = client.post(f"{server.address}{path}", json={**fields, **server.languages})
                answer.raise_for_status()
                times[number].append(time.monotonic() - began)

    threads = [threading.Thread(target=one, args=(k,)) for k in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(value for values in times for value in values)


def soak(server: Server, lines: list[str], connections: int, seconds: float) -> None:
    """Memory after each minute of requests of all kinds."""
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        count += len(ask(server, lines, connections, min(60, until - time.monotonic()), mixed=True))
        print(f"{count:,} requests: {server.memory:,.0f} MB", flush=True)
    server.end()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--connections", type=int, default=16, help="of the soak")
    chosen = parser.parse_args()
    lines = [line for line in chosen.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if chosen.soak:
        return soak(Server(chosen.model, chosen.overrides), lines, chosen.connections, chosen.soak)
    for name, more in (("batches", []), ("one by one", ["batch=1", "wait=0"])):
        server = Server(chosen.model, [*chosen.overrides, *more])
        ask(server, lines, 8, 5)  # until all is warm
        for connections in (1, 8, 64):
            times = ask(server, lines, connections, chosen.seconds)
            cuts = statistics.quantiles(times, n=100)
            print(
                f"{name}, {connections} connections: {1000 * cuts[49]:.0f} ms, 95 % {1000 * cuts[94]:.0f}, 99 % "
                f"{1000 * cuts[98]:.0f}; {len(times) / chosen.seconds:.1f} requests/s; {server.memory:,.0f} MB",
                flush=True,
            )
        server.end()


if __name__ == "__main__":
    main()
