"""Measures the server under load.

    python scripts/load.py RUN_DIR FILE [search=greedy …] [--seconds 20] [--soak 1200]

FILE has sentences, one a line; each is a request of its own. Measured are: the time until the answer (median, 95 and 99 per
cent) with 1, 8 and 64 connections that ask without a pause; requests per second, against a server that translates one
sentence at a time; the memory of the server at the end of each; with --soak, its growth in so many seconds. Figures are in
README.md beside this file.
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

import httpx2
import psutil


class Server:
    """`nmt.serve` in a process of its own."""

    def __init__(self, model: str, overrides: list[str]) -> None:
        command = [sys.executable, "-m", "nmt.serve", f"model={model}", "port=0", "max_open=1000", *overrides]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.address = next(
            "http" + line.split("http", 1)[1].strip() for line in self.process.stderr if "http://" in line
        )
        found = httpx2.get(f"{self.address}/models").json()[0]
        self.languages = {"source": found["source"], "target": found["target"]}

    @property
    def memory(self) -> float:
        """Resident megabytes."""
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate()


def ask(server: Server, lines: list[str], connections: int, seconds: float) -> list[float]:
    """Seconds of each request; raises if one is not answered."""
    times: list[list[float]] = [[] for _ in range(connections)]
    until = time.monotonic() + seconds

    def one(number: int) -> None:
        draw = random.Random(number)
        with httpx2.Client(timeout=120) as client:
            while time.monotonic() < until:
                began = time.monotonic()
                answer = client.post(f"{server.address}/translate", json={"q": draw.choice(lines), **server.languages})
                answer.raise_for_status()
                times[number].append(time.monotonic() - began)

    threads = [threading.Thread(target=one, args=(k,)) for k in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(value for its in times for value in its)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--soak", type=float, default=0)
    chosen = parser.parse_args()
    lines = chosen.file.read_text(encoding="utf-8").splitlines()
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
        if chosen.soak and not more:
            start = server.memory
            count = len(ask(server, lines, 16, chosen.soak))
            print(f"soak: {count:,} requests in {chosen.soak:.0f} s; {start:,.0f} → {server.memory:,.0f} MB")
        server.end()


if __name__ == "__main__":
    main()
