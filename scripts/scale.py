"""Measures the cost of large texts and of several processes.

    python scripts/scale.py CORPUS.en CORPUS.de [--pairs 1000000] [--folder DIR] [--only ranks]
    python scripts/scale.py --only lines [--lines 2000000] [--folder DIR] [--ways one two killed …]

From the sentences of a real corpus it makes many pairs of about 25 words a side (two of them in a row, and a number, so that
lines differ), then measures

    the store       seconds, pairs/s, the share of SentencePiece's own speed, the most memory of a process
    beginning       seconds from the command to the first update, when the store exists
    two ranks       target tokens per second, against one process with two threads, alternating
    lines           seconds to translate short lines with a small model in several ways, and whether the outputs are the
                    same bytes; the speed of reading, hashing and joining the lines

The ways are one process with two threads and two ranks with one thread each, which alternate, and two ranks with a
SIGKILL in each quarter. Further ways are two Ray tasks, Ray Data with two actors, and an array of two jobs by submitit.

Results are in results/scale.md.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import itertools
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from nmt.data.lines import read_lines
from nmt.foundation.processes import available_cores as cores
from nmt.inference.text_input import find_input

TINY = [
    "data=text", "data.source=en", "data.target=de", "sizes.encoder=64", "sizes.decoder=128", "sizes.readout=64",
    "model.embedding_size=64", "decoder=luong", "attention=general", "trainer.log_every=1", "search=greedy", "device=cpu",
    "translation.max_length_factor=0.1", "translation.max_length_offset=2", "metric=loss",
]  # fmt: skip
"""A network so small that what is measured is the data."""


def write_pairs(files: list[Path], folder: Path, pairs: int) -> Path:
    """`pairs` aligned lines made of a corpus' sentences; returned is their path without the language."""
    content = b"".join(file.read_bytes() for file in files)
    out = folder / f"pairs-{pairs}-{hashlib.sha256(content).hexdigest()[:8]}"
    if all(out.with_name(f"{out.name}.{side}").exists() for side in ("en", "de")):
        return out
    rows = list(zip(*map(read_lines, files), strict=True))
    generator, left = random.Random(1), pairs
    parts = [out.with_name(f"{out.name}.{side}.part") for side in ("en", "de")]
    with (
        open(parts[0], "w", encoding="utf-8") as source,
        open(parts[1], "w", encoding="utf-8") as target,
    ):
        while left:
            count = min(left, 10_000)
            for _ in range(count):
                chosen, number = generator.choices(rows, k=2), str(generator.randrange(10_000))
                source.write(" ".join([*(row[0] for row in chosen), number]) + "\n")
                target.write(" ".join([*(row[1] for row in chosen), number]) + "\n")
            left -= count
    for part in parts:
        part.rename(part.with_suffix(""))
    small = [read_lines(file)[:200] for file in files]
    for side, lines in zip(("en", "de"), small, strict=True):
        (folder / f"small.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out


class Watch:
    """The most memory of a process and of all that it starts, in GB: what each has alone, and pages shared between them
    once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.each: dict[str, float] = {}
        self.together, self._process = 0.0, process
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._process.poll() is None:
            try:
                top = psutil.Process(self._process.pid)
                result = [
                    (one, one.memory_full_info()) for one in (top, *top.children(recursive=True))
                ]
                for one, info in result:
                    key = f"{one.pid}"
                    self.each[key] = max(self.each.get(key, 0.0), info.uss / 1e9)
                self.together = max(self.together, sum(info.pss for _, info in result) / 1e9)
            except psutil.Error:
                pass
            time.sleep(0.5)


def command(
    prefix: list[str], overrides: list[str], folder: Path, until: str | None = None
) -> tuple[float, str, Watch]:
    """Seconds until a line of its output holds `until` (then it is ended), or until it ends; its output; its memory."""
    environment = {**os.environ, "NMT_CACHE": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
    given = {text.partition("=")[0] for text in overrides}
    tiny = [text for text in TINY if text.partition("=")[0] not in given]
    began = time.monotonic()
    process = subprocess.Popen(
        [*prefix, "-m", "nmt.train", *tiny, *overrides], env=environment, text=True, stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    watch, output, seconds = Watch(process), [], 0.0
    assert process.stdout is not None
    for line in process.stdout:
        output.append(line)
        if until is not None and until in line and not seconds:
            seconds = time.monotonic() - began
            process.terminate()
    process.wait()
    return seconds or time.monotonic() - began, "".join(output), watch


def own_speed(files: list[Path], model: bytes, collecting: bool, pairs: int = 50_000) -> float:
    """Pairs per second and core that SentencePiece alone encodes, with one process of one thread on each core.
    `collecting`: with Python's garbage collection, as usual."""
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = []
    for file in files:
        with open(file, encoding="utf-8") as opened:
            texts.append([next(opened).rstrip("\n") for _ in range(pairs)])
    speeds: list[float] = []
    for _ in range(3):
        readers = []
        for _ in range(cores()):
            reader, writer = os.pipe()
            if not os.fork():
                gc.enable() if collecting else gc.disable()
                began = time.monotonic()
                for lines in texts:
                    for start in range(0, pairs, 8192):
                        tokenizer.encode(lines[start : start + 8192], num_threads=1)
                os.write(writer, f"{pairs / (time.monotonic() - began)}".encode())
                os._exit(0)
            os.close(writer)
            readers.append(reader)
        speeds += [float(os.read(reader, 100)) for reader in readers]
    return statistics.median(speeds)


def store(text: Path, folder: Path, pairs: int) -> None:
    here = [sys.executable]
    data = [
        f"data.train={text}",
        f"data.validation={folder}/small",
        "store=disk",
        "trainer.max_updates=3",
    ]
    seconds, output, watch = command(
        here, [*data, f"run_dir={folder}/run-{time.time():.0f}"], folder
    )
    print(output)
    print(
        f"store and three updates: {seconds:.0f} s; memory of each process (GB): {sorted(watch.each.values())[::-1]}"
    )
    runs = sorted(folder.glob("run-*/best.safetensors"))
    from nmt.storage import checkpoint as ckpt

    model = ckpt.tokenizer_from(ckpt.read(runs[-1])).models[0]
    sides = [text.with_name(f"{text.name}.{side}") for side in ("en", "de")]
    alone, quickest = own_speed(sides, model, True), own_speed(sides, model, False)
    result = re.search(r"encoded [\d,]+ pairs in ([\d,]+) s", output)
    if result:
        encoding = float(result[1].replace(",", ""))
        speed = pairs / encoding
        print(
            f"SentencePiece alone: {alone:,.0f} pairs/s a core, {quickest:,.0f} without garbage collection; encoding: "
            f"{speed:,.0f} pairs/s on {cores()}, {speed / alone / cores():.0%} and {speed / quickest / cores():.0%}"
        )
    began = [
        command(
            here, [*data, f"run_dir={folder}/again-{k}-{time.time():.0f}"], folder, "update 1/"
        )[0]
        for k in range(3)
    ]
    print(
        f"from the command to the first update, the store being there: {statistics.median(began):.1f} s (median of {began})"
    )
    two = ["torchrun", "--standalone", "--nproc-per-node=2"]
    seconds, output, watch = command(
        two, [*data, "trainer.max_updates=50", f"run_dir={folder}/two-{time.time():.0f}"], folder
    )
    print(output[-1500:])
    print(
        f"two ranks: {seconds:.0f} s; alone in each process (GB) {sorted(watch.each.values())[::-1]}; all together "
        f"{watch.together:.2f}"
    )


def ranks(text: Path, folder: Path, repeats: int = 3) -> None:
    """Target tokens per second of the default network: one process with two threads, two ranks with one each, and these
    exchanging gradients in one batch of eight only, which shows what the exchange costs."""
    sizes = [
        "sizes.encoder=256",
        "sizes.decoder=512",
        "sizes.readout=256",
        "model.embedding_size=256",
    ]
    data = [f"data.train={text}@:20000", f"data.validation={folder}/small", "store=memory"]
    two = ["torchrun", "--standalone", "--nproc-per-node=2"]
    variants = {
        "one process, two threads": ([sys.executable], 2, 24),
        "two ranks": (two, 1, 24),
        "two ranks, one exchange in eight": (two, 8, 3),
    }
    speeds: dict[str, list[float]] = {name: [] for name in variants}
    for k in range(repeats):
        for name, (prefix, accumulate, updates) in variants.items():
            out = folder / f"ranks-{len(name)}-{k}-{time.time():.0f}"
            more = [
                f"trainer.accumulate={accumulate}",
                f"trainer.max_updates={updates}",
                f"trainer.log_every={updates}",
            ]
            chosen = [
                "decoder=bahdanau",
                "attention=concat",
                *sizes,
                *data,
                *more,
                f"run_dir={out}",
            ]
            command(prefix, chosen, folder)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            speeds[name].append(next(line["speed"] for line in lines if line["kind"] == "train"))
    for name, result in speeds.items():
        print(
            f"{name}: {statistics.median(result):,.0f} target tokens/s (median of {[round(one) for one in result]})"
        )


def write_lines(folder: Path, count: int) -> Path:
    """A file of lines with one to three letters."""
    file = folder / f"lines-{count}.txt"
    generator = random.Random(1)
    with open(file, "w", encoding="utf-8") as opened:
        for _ in range(count):
            letters = generator.choices("abcdefgh", k=generator.randint(1, 3))
            opened.write(" ".join(letters) + "\n")
    return file


def train_model(folder: Path) -> str:
    """Trains a small model on the task reverse, unless it exists; returns its run folder."""
    run = folder / "model"
    if not (run / "results.json").exists():
        sizes = [f"sizes.{name}=32" for name in ("encoder", "decoder", "readout")]
        words = ["experiment=reverse", "data.train=2000", "trainer.max_epochs=2", "device=cpu"]
        command = ["-m", "nmt.train", *words, *sizes, "model.embedding_size=32", f"run_dir={run}"]
        subprocess.run([sys.executable, *command], check=True, stderr=subprocess.DEVNULL)
    return str(run)


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
RAY_DATA = """
import sys
from nmt.pipeline.ray_data import translate_dataset
translate_dataset(*sys.argv[1:], actors=2, search="greedy", device="cpu")
"""
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


WAYS = ["one", "two", "killed", "ray", "ray_data", "submitit"]


class Ways:
    """Ways to translate a file with two cores. Each method writes its output to `output`.

    model, source: run folder and input
    """

    def __init__(self, model: str, source: Path) -> None:
        self.words = [f"model={model}", f"input={source}", "search=greedy", "device=cpu"]
        self.model, self.source = model, source

    def start(self, arguments: list[str], threads: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **RAY, "OMP_NUM_THREADS": str(threads)}
        return subprocess.Popen(
            [sys.executable, *arguments], env=environment, stderr=subprocess.DEVNULL
        )

    def run(self, arguments: list[str], threads: int) -> None:
        if self.start(arguments, threads).wait():
            raise SystemExit(f"failed: {' '.join(arguments)}")

    def translate(self, output: Path | str, threads: int) -> list[str]:
        return ["-m", "nmt.translate", *self.words, f"output={output}", f"threads={threads}"]

    def one(self, output: Path) -> None:
        """One process with two threads."""
        self.run(self.translate(output, 2), 2)

    def two(self, output: Path) -> None:
        """Two ranks with one thread each."""
        self.run([*TORCHRUN, *self.translate(output, 1)], 1)

    def killed(self, output: Path) -> None:
        """Two ranks, of which one is killed in each quarter; the same command again after each kill."""
        command = [*TORCHRUN, *self.translate(output, 1)]
        parts = Path(f"{output}.parts")
        for quarter in range(4):
            job = self.start(command, 1)
            while not (parts / "manifest.json").exists():
                time.sleep(0.1)
            size = json.loads((parts / "manifest.json").read_text())["lines per part"]
            with open(self.source, "rb") as opened:
                count = sum(1 for _ in opened) / int(size)
            while len(list(parts.glob("part-?????"))) < (quarter + 0.5) / 4 * count:
                if job.poll() is not None:
                    raise SystemExit("the job has ended before the kill")
                time.sleep(0.1)
            for rank in psutil.Process(job.pid).children():
                if rank.environ().get("RANK") == str(quarter % 2):
                    rank.send_signal(signal.SIGKILL)
            print(f"  quarter {quarter + 1}: rank {quarter % 2} killed, exit status {job.wait()}")
        self.run(command, 1)

    def ray(self, output: Path) -> None:
        """Two Ray tasks."""
        self.run([*self.translate(output, 1), "launcher=ray", "jobs=2"], 1)

    def ray_data(self, output: Path) -> None:
        """Two Ray actors, by Ray Data."""
        import pyarrow.parquet

        folder = output.with_suffix(".parquet")
        self.run(["-c", RAY_DATA, self.model, str(self.source), str(folder)], 1)
        with open(output, "w", encoding="utf-8") as opened:
            for file in sorted(folder.glob("*.parquet")):
                column = pyarrow.parquet.read_table(file, columns=["translation"])[0]
                opened.writelines(f"{text}\n" for text in column.to_pylist())

    def submitit(self, output: Path) -> None:
        """An array of two jobs without a connection, by submitit on this machine."""
        import submitit

        folder = output.with_suffix(".array")
        executor = submitit.AutoExecutor(folder=f"{folder}.log", cluster="local")
        executor.update_parameters(timeout_min=60)
        command = [sys.executable, *self.translate(f"{folder}/", 1)]
        array = submitit.helpers.CommandFunction(command, verbose=False)
        for job in executor.map_array(array, ["job=1/2", "job=2/2"]):
            job.result()
        with open(output, "wb") as opened:
            for part in sorted(folder.glob("part-?????")):
                opened.write(part.read_bytes())


def lines(count: int, names: list[str], folder: Path, repeats: int) -> None:
    """Seconds to translate a file in several ways, whether their outputs are the same bytes, and lines per second of
    each part of the work."""
    folder = folder / "lines"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    model, file, few = train_model(folder.parent), write_lines(folder, count), folder / "few.txt"
    with open(file, "rb") as opened:
        few.write_bytes(b"".join(itertools.islice(opened, 100)))
    seconds: dict[tuple[str, str], list[float]] = {}
    digests: dict[str, str] = {}
    print(f"{count:,} lines, {platform.processor() or platform.machine()}, load {os.getloadavg()}")
    for turn in range(repeats):
        for name in names if turn == 0 else [name for name in names if name in ("one", "two")]:
            for source in (few, file) if name in ("one", "two") else (file,):
                output = folder / f"{name}-{source.stem}-{turn}"
                began = time.monotonic()
                getattr(Ways(model, source), name)(output)
                seconds.setdefault((name, source.stem), []).append(time.monotonic() - began)
            with open(output, "rb") as opened:
                digests[f"{name}, {turn}"] = hashlib.file_digest(opened, "sha256").hexdigest()
            taken = seconds[name, file.stem][-1]
            print(
                f"{name}: {taken:.1f} s, {count / taken:,.0f} lines/s, {digests[f'{name}, {turn}']}"
            )
    print(f"the same bytes: {len(set(digests.values())) == 1}")
    best = {key: min(times) for key, times in seconds.items()}
    if {"one", "two"} <= {*names}:
        work = {name: best[name, file.stem] - best[name, few.stem] for name in ("one", "two")}
        print(f"seconds: {seconds}")
        print(f"two ranks: {best['one', file.stem] / best['two', file.stem]:.2f} times as fast")
        print(f"two ranks, without the start: {work['one'] / work['two']:.2f} times as fast")
    text = find_input(str(file))
    parts = {
        "reading": lambda: sum(1 for _ in text.lines()),
        "hashing": text.digest,
        "joining": lambda: shutil.copyfile(output, folder / "joined"),
    }
    for name, action in parts.items():
        began = time.monotonic()
        action()
        print(f"{name}: {count / (time.monotonic() - began):,.0f} lines/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", nargs="*", type=Path, help="two files; not needed for lines")
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path("runs/scale"))
    parser.add_argument("--only", choices=("text", "store", "ranks", "lines"))
    parser.add_argument("--repeats", type=int, default=2, help="runs of each command, for lines")
    parser.add_argument("--lines", type=int, default=2_000_000, help="number of lines")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="for lines")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.only == "lines":
        return lines(chosen.lines, chosen.ways, chosen.folder, chosen.repeats)
    if len(chosen.corpus) != 2:
        parser.error("two corpus files are needed: CORPUS.en CORPUS.de")
    text = write_pairs(chosen.corpus, chosen.folder, chosen.pairs)
    if chosen.only in (None, "store"):
        store(text, chosen.folder, chosen.pairs)
    if chosen.only in (None, "ranks"):
        ranks(text, chosen.folder)


if __name__ == "__main__":
    main()
