"""Measures the server under load.

    python scripts/load.py RUN_DIR FILE [search=greedy …] [--seconds 20]
    python scripts/load.py RUN_DIR FILE --soak 1200 [--connections 16]
    python scripts/load.py RUN_DIR FILE --processes 1x2,2x1,4x1 [--connections 32]
    python scripts/load.py RUN_DIR FILE --failures 600 --newer FILE.safetensors [--share 0.7]

FILE has one sentence per line; each is one request. Measures, with 1, 8 and 64 connections without a pause, the time
until the answer (median, 95 and 99 per cent), requests per second against a server that translates one sentence at a
time, and the memory of the server. With --soak SECONDS, measures only its memory, every minute, under requests of all
kinds: texts, lists, HTML, alignments, alternatives, glossaries, explanations, contrasts. With --processes, compares
numbers of processes x threads. With --failures SECONDS, two servers are behind nginx, with
the configuration of nmt/serving/running.md. Requests arrive at a share of the measured capacity. One server is killed
every minute, and the checkpoint is replaced once. Every answer is compared with nmt.translate. Figures are in
results/serving.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psutil

RUNNING = Path(__file__).parent.parent / "nmt/serving/running.md"
"""Page with the nginx configuration."""


def started_address(messages: Iterable[str]) -> str:
    """Address in the messages of a starting server. Without an address, the program ends with the
    messages."""
    lines: list[str] = []
    for line in messages:
        lines.append(line)
        if address := re.search(r"http://\S+", line):
            return address[0]
    sys.exit("".join(lines))


class Server:
    """`nmt.serve` in processes of its own."""

    def __init__(self, model: str, overrides: list[str]) -> None:
        command = [
            sys.executable,
            "-m",
            "nmt.serve",
            f"model={model}",
            "port=0",
            "max_open=1000",
            "access_log=false",
            *overrides,
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.address = started_address(self.process.stderr)
        result = httpx2.get(f"{self.address}/models").json()[0]
        self.languages = {"source": result["source"], "target": result["target"]}

    @property
    def memory(self) -> float:
        """Megabytes of all processes; memory that several processes share counts once (PSS)."""
        process = psutil.Process(self.process.pid)
        processes = [process, *process.children(recursive=True)]
        return sum(one.memory_full_info().pss for one in processes) / 1e6

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

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(one, range(connections)))
    return sorted(value for values in times for value in values)


def soak(server: Server, lines: list[str], connections: int, seconds: float) -> None:
    """Memory after each minute of requests of all kinds."""
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        count += len(ask(server, lines, connections, min(60, until - time.monotonic()), mixed=True))
        print(f"{count:,} requests: {server.memory:,.0f} MB", flush=True)
    server.end()


def compare_processes(chosen: argparse.Namespace, lines: list[str]) -> None:
    """Requests per second, latency and memory of several numbers of processes x threads."""
    for setting in chosen.processes.split(","):
        workers, threads = setting.split("x")
        more = [f"workers={workers}", f"threads={threads}"]
        server = Server(chosen.model, [*chosen.overrides, *more])
        ask(server, lines, chosen.connections, 5)  # until all is warm
        times = ask(server, lines, chosen.connections, chosen.seconds)
        cuts = statistics.quantiles(times, n=100)
        print(
            f"{workers} processes x {threads} threads: {len(times) / chosen.seconds:.1f} requests/s; "
            f"{1000 * cuts[49]:.0f} ms, 95 % {1000 * cuts[94]:.0f}, 99 % {1000 * cuts[98]:.0f}; {server.memory:,.0f} MB",
            flush=True,
        )
        server.end()


# nginx in front of two servers, of which one is killed every minute


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def nginx_configuration(port: int, servers: list[int]) -> str:
    """The configuration in running.md, complete, with other ports, without TLS."""
    text = RUNNING.read_text(encoding="utf-8")
    block = re.search(r"```nginx\n(.*?)```", text, re.DOTALL)
    assert block is not None
    site = block[1].replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    site = re.sub(r"^ *(ssl_|server_name).*\n", "", site, flags=re.MULTILINE)
    for given, used in zip(("8001", "8002"), servers, strict=True):
        site = site.replace(f"127.0.0.1:{given}", f"127.0.0.1:{used}")
    return (
        "daemon off; pid nginx.pid; error_log stderr warn; worker_processes 1;\n"
        "events { worker_connections 1024; }\n"
        f"http {{\naccess_log off; client_body_temp_path body; proxy_temp_path proxy;\n{site}}}\n"
    )


@contextlib.contextmanager
def nginx(folder: Path, servers: list[int]) -> Iterator[str]:
    """Address of an nginx with the configuration in running.md."""
    port = free_port()
    (folder / "nginx.conf").write_text(nginx_configuration(port, servers), encoding="utf-8")
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}/mt"
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(client: httpx2.Client, ports: list[int]) -> None:
    """Waits until the servers of these ports accept requests, at most two minutes each."""
    for port in ports:
        for _ in range(600):
            with contextlib.suppress(httpx2.TransportError):
                if client.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                    break
            time.sleep(0.2)


class Kept:
    """A server that is started again after its end, as a service manager does."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.stopped = False
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        threading.Thread(target=self._keep, daemon=True).start()

    def _keep(self) -> None:
        while not self.stopped:
            self.process.wait()
            if not self.stopped:
                self.process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)

    @property
    def memory(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def end(self) -> None:
        self.stopped = True
        self.process.terminate()
        self.process.wait()


def translated(model: Path, file: Path, overrides: list[str]) -> dict[str, str]:
    """Translations of all lines by the command line."""
    command = [sys.executable, "-m", "nmt.translate", f"model={model}", f"input={file}", *overrides]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(
        zip(file.read_text(encoding="utf-8").splitlines(), output.splitlines(), strict=True)
    )


def failures(chosen: argparse.Namespace, lines: list[str]) -> None:
    """Requests through nginx while servers are killed and the checkpoint is replaced."""
    folder = Path(tempfile.mkdtemp(prefix="nmt-failures-"))
    model = folder / "best.safetensors"
    shutil.copy(
        next(
            path
            for path in (Path(chosen.model) / "best.safetensors", Path(chosen.model))
            if path.is_file()
        ),
        model,
    )
    file = folder / "lines"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    expected = [translated(path, file, chosen.overrides) for path in (model, chosen.newer)]
    differing = sum(expected[0][line] != expected[1][line] for line in lines)
    print(f"{differing} of {len(lines)} translations differ between the checkpoints", flush=True)
    ports = [free_port(), free_port()]
    options = ["threads=1", "max_open=1000", "access_log=false", "reload=2", *chosen.overrides]
    servers = [
        Kept([sys.executable, "-m", "nmt.serve", f"model={folder}", f"port={port}", *options])
        for port in ports
    ]
    with nginx(folder, ports) as address:
        trial = Trial(address, lines, expected)
        trial.begin(ports)
        capacity = trial.capacity(chosen.connections)
        rate = chosen.rate or chosen.share * capacity
        print(f"capacity {capacity:.1f} requests/s; {rate:.1f} requests/s are sent", flush=True)
        sender = threading.Thread(target=trial.send, args=(rate, chosen.failures))
        sender.start()
        began = time.monotonic()
        for minute in itertools.count(1):
            sender.join(max(0.0, began + 60 * minute - time.monotonic()))
            memory = ", ".join(f"{server.memory:,.0f}" for server in servers)
            print(f"minute {minute}: {trial.report()}; {memory} MB", flush=True)
            if not sender.is_alive():
                break
            if minute == max(1, round(chosen.failures / 120)):
                shutil.copy(chosen.newer, folder / "newer")
                os.replace(folder / "newer", model)
                print("the checkpoint is replaced", flush=True)
            servers[minute % 2].process.kill()
    for server in servers:
        server.end()
    print(f"all: {trial.report(every=True)}", flush=True)
    shutil.rmtree(folder)


class Trial:
    """Requests to one address, and a comparison of their answers.

    address: address of nginx
    lines: sentences
    expected: translations of the sentences by each checkpoint, in the order of their use
    """

    def __init__(self, address: str, lines: list[str], expected: list[dict[str, str]]) -> None:
        self.address = address
        self.lines = lines
        self.expected = expected
        self.languages: dict[str, str] = {}
        self.times: list[float] = []
        self.all_times: list[float] = []
        self.count: Counter[str] = Counter()
        self.client = httpx2.Client(timeout=120, limits=httpx2.Limits(max_connections=1000))

    def begin(self, ports: list[int]) -> None:
        wait_until_ready(self.client, ports)
        model = self.client.get(f"{self.address}/models").json()[0]
        self.languages = {"source": model["source"], "target": model["target"]}

    def capacity(self, connections: int, seconds: float = 15) -> float:
        """Requests per second of clients without a pause."""
        until = time.monotonic() + seconds

        def client(number: int) -> int:
            count = 0
            while time.monotonic() < until:
                self.ask(random.choice(self.lines), f"warm-{number}-{count}")
                count += 1
            return count

        with ThreadPoolExecutor(connections) as pool:
            total = sum(pool.map(client, range(connections)))
        self.times.clear()
        self.all_times.clear()
        self.count.clear()
        return total / seconds

    def send(self, rate: float, seconds: float) -> None:
        """Sends requests at random times, independently of the answers."""
        draw, start, due = random.Random(1), time.monotonic(), 0.0
        with ThreadPoolExecutor(500) as pool:
            for number in itertools.count():
                due += draw.expovariate(rate)
                if due > seconds:
                    break
                time.sleep(max(0.0, start + due - time.monotonic()))
                self.count["sent"] += 1
                pool.submit(self.ask, draw.choice(self.lines), f"request-{number}")

    def ask(self, line: str, request_id: str) -> None:
        began = time.monotonic()
        try:
            answer = self.client.post(
                f"{self.address}/translate",
                json={"q": line, **self.languages},
                headers={"X-Request-ID": request_id},
            )
            kind = self.kind(answer, line, request_id)
        except httpx2.TransportError as error:
            kind = type(error).__name__
        self.count[kind] += 1
        self.times.append(time.monotonic() - began)
        self.all_times.append(time.monotonic() - began)

    def kind(self, answer: httpx2.Response, line: str, request_id: str) -> str:
        """Outcome of a request: equal to the command line, or the fault."""
        if answer.status_code != 200:
            return f"status {answer.status_code}"
        if answer.headers["X-Request-ID"] != request_id:
            return "answer to another request"
        text = answer.json()["translatedText"]
        old, new = (translations[line] for translations in self.expected)
        if text not in (old, new):
            return "other translation"
        return "equal" if old == new else "equal to the old" if text == old else "equal to the new"

    def report(self, every: bool = False) -> str:
        """Counts since the start, and latencies since the last report or since the start."""
        times, self.times = self.all_times if every else self.times, []
        cuts = statistics.quantiles(times or [0.0, 0.0], n=100)
        counts = ", ".join(f"{name} {count:,}" for name, count in self.count.items())
        return f"{counts}; {1000 * cuts[49]:.0f} ms, 99 % {1000 * cuts[98]:.0f}, longest {1000 * max(times, default=0):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument(
        "--connections", type=int, default=16, help="of --soak, --processes and the capacity"
    )
    parser.add_argument("--processes", default="", help="processes x threads, as 1x2,2x1")
    parser.add_argument("--failures", type=float, default=0, help="seconds")
    parser.add_argument(
        "--newer", type=Path, help="checkpoint that replaces the first, for --failures"
    )
    parser.add_argument(
        "--share", type=float, default=0.7, help="share of the capacity, for --failures"
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=0,
        help="requests per second instead of a share of the capacity",
    )
    chosen = parser.parse_args()
    lines = [line for line in chosen.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if chosen.soak:
        return soak(Server(chosen.model, chosen.overrides), lines, chosen.connections, chosen.soak)
    if chosen.processes:
        return compare_processes(chosen, lines)
    if chosen.failures:
        return failures(chosen, lines)
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
