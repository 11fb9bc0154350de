"""Measures the cost of large texts and of several processes.

    python scripts/scale.py CORPUS.en CORPUS.de [--pairs 1000000] [--folder DIR] [--only ranks] [--model RUN]

From the sentences of a real corpus it makes many pairs of about 25 words a side (two of them in a row, and a number, so that
lines differ), then measures

    the store       seconds, pairs/s, the share of SentencePiece's own speed, the most memory of a process
    beginning       seconds from the command to the first update, when the store exists
    two ranks       target tokens per second, against one process with two threads, alternating
    lines           seconds to translate the first file with --model: one process with two threads, and two ranks with one
                    thread each, alternating; and the speed of reading, hashing and joining the lines

Results are in README.md beside this file.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

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
    out = folder / f"pairs-{pairs}"
    if all(out.with_name(f"{out.name}.{side}").exists() for side in ("en", "de")):
        return out
    rows = list(
        zip(*(file.read_text(encoding="utf-8").splitlines() for file in files), strict=True)
    )
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
    small = [file.read_text(encoding="utf-8").splitlines()[:200] for file in files]
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


def lines(file: Path, model: str, folder: Path, repeats: int) -> None:
    """Seconds to translate a file with one process and with two ranks, and lines per second of each part of the work."""
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    variants = {"one": ([sys.executable], 2), "two": (two, 1)}
    few = folder / "few.txt"
    with open(file, "rb") as opened:
        few.write_bytes(b"".join(itertools.islice(opened, 100)))
    seconds: dict[str, list[float]] = {}
    for _ in range(repeats):
        for (name, (prefix, threads)), source in itertools.product(variants.items(), (few, file)):
            words = [f"model={model}", f"input={source}", f"output={folder}/{name}-{source.name}"]
            translate = ["-m", "nmt.translate", *words, "search=greedy", "device=cpu"]
            began = time.monotonic()
            subprocess.run(
                [*prefix, *translate, f"threads={threads}"],
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                check=True,
                stderr=subprocess.DEVNULL,
            )
            key = f"{name}, {source.name}"
            seconds.setdefault(key, []).append(time.monotonic() - began)
            print(f"{key}: {seconds[key][-1]:.1f} s", flush=True)
    best = {key: min(times) for key, times in seconds.items()}
    work = {name: best[f"{name}, {file.name}"] - best[f"{name}, few.txt"] for name in variants}
    written = [(folder / f"{name}-{file.name}").read_bytes() for name in variants]
    print(f"identical: {written[0] == written[1]}")
    print(
        f"two ranks are {work['one'] / work['two']:.2f} times as fast, without the start of Python"
    )
    text = find_input(str(file))
    parts = {
        "reading": lambda: sum(1 for _ in text.lines()),
        "hashing": text.digest,
        "joining": lambda: shutil.copyfile(folder / f"one-{file.name}", folder / "joined"),
    }
    count = sum(1 for _ in text.lines())
    for name, action in parts.items():
        began = time.monotonic()
        action()
        print(f"{name}: {count / (time.monotonic() - began):,.0f} lines/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", nargs=2, type=Path)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path("runs/scale"))
    parser.add_argument("--only", choices=("text", "store", "ranks", "lines"))
    parser.add_argument("--repeats", type=int, default=2, help="runs of each command, for lines")
    parser.add_argument("--model", help="run folder of the model that translates, for lines")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.only == "lines":
        return lines(chosen.corpus[0], chosen.model, chosen.folder, chosen.repeats)
    text = write_pairs(chosen.corpus, chosen.folder, chosen.pairs)
    if chosen.only in (None, "store"):
        store(text, chosen.folder, chosen.pairs)
    if chosen.only in (None, "ranks"):
        ranks(text, chosen.folder)


if __name__ == "__main__":
    main()
