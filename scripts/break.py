r"""Tries to break the guarantees of tests/README.md, and counts the outcomes by class.

    python scripts/break.py [--kills 1000] [--mutants 5000] [--races 1000] [--deaths 30] [--jobs 200] \
        [--seconds 3600] [--seed 1]

kills: training runs in 22 configurations, with text stored on disk and mixtures with stages. SIGKILL ends each up to four
times at injected moments (before and after writes, renames and updates). Resumed, its weights must be those of an
uninterrupted run. mutants: checkpoints, tables, word vectors and constraints with bytes changed, cut or added: one
clean message or a good result, never a traceback, a hang over 10 s, or more than 1 GB. races: processes that start,
resume and read the same run at the same moment. deaths: one of two processes that train together ends by SIGKILL at a
random moment, again and again, and torchrun starts them again; the weights must be those of two that lived. jobs: two
processes translate, score, align or back-translate together, and SIGKILL ends one of them at an injected moment, up
to four times. The same command must then write the bytes of an uninterrupted one, and no other file. Each kind ends
after `--seconds`, finished or not. Pictures are not drawn. Exit status 1 if anything broke.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import faulthandler
import functools
import importlib
import itertools
import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import nmt
from nmt.configuration.configure import configure
from nmt.data.sources.table import TableFiles
from nmt.data.word_vectors import read_vectors
from nmt.drawing import plots
from nmt.foundation import torchrun
from nmt.foundation.errors import Stopped, UserError
from nmt.inference import file_alignment, input_lines, scoring, shared_output
from nmt.inference.input_lines import InputLines
from nmt.pipeline.run_training import train
from nmt.storage import checkpoint as ckpt
from nmt.training.task.translation_task import TranslationTask

TINY = [
    "experiment=reverse", "data.train=40", "data.validation=6", "data.test=4", "trainer.max_epochs=2", "sizes.encoder=4",
    "sizes.decoder=8", "sizes.readout=6", "model.embedding_size=6", "batching.sentences=10", "search=greedy",
    "trainer.save_every=0",
]  # fmt: skip
CONFIGURATIONS = [
    [f"decoder={decoder}", f"attention={'none' if decoder == 'fixed' else 'general'}", *extra]
    for decoder, extra in itertools.product(
        ("luong", "bahdanau", "luong_feed", "fixed"),
        (
            ["trainer.ema=0.9"],
            ["trainer.average=2", "schedule=plateau"],
            [
                "cell=lstm",
                "encoder.num_layers=2",
                "decoder.num_layers=2",
                "optimizer=sgd",
                "optimizer.lr=0.1",
            ],
            ["trainer.precision=bfloat16", "trainer.accumulate=2", "trainer.keep=2"],
        ),
    )
] + [
    ["decoder=luong", "objective=scheduled_sampling", "objective.updates=2"],
    [
        "decoder=bahdanau",
        "optimizer=adadelta",
        "schedule=luong_halving",
        "trainer.validate_every=0.5",
    ],
    ["decoder=luong", "tokenizer=bpe", "tokenizer.sampling=0.3"],
    ["decoder=luong", "tokenizer=unigram", "tokenizer.sampling=0.3"],
    [
        "decoder=luong",
        "data=text",
        "store=disk",
        "filters.drop_duplicates=true",
        "tokenizer=bpe",
        "tokenizer.sampling=0.3",
    ],
    ["decoder=luong", "data=mix", "store=disk"],
]
MIXTURE = """datasets: {a: a.tsv, b: b.tsv}
stages: [first, last]
first: [a 0.7, b 0.3, until a 1]
last: [a 0.2, b 0.8, until b 2]
modifiers: [UpperCase: 0.2, Noise: 0.1, Typos: 0.3]
"""


def write_texts(folder: Path) -> None:
    """Writes the training text of data=text and data=mix."""
    rows = [" ".join(chr(97 + (i * k) % 10) for k in range(1, 3 + i % 5)) for i in range(44)]
    for name, lines in (("train", rows[:38]), ("val", rows[38:])):
        (folder / f"{name}.x").write_text("".join(line + "\n" for line in lines))
        (folder / f"{name}.y").write_text("".join(line[::-1] + "\n" for line in lines))
    for name, lines in (("a", rows[:20]), ("b", rows[10:38]), ("val", rows[38:])):
        (folder / f"{name}.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    (folder / "mix.yml").write_text(MIXTURE)


def overrides_of(extra: list[str], folder: Path) -> list[str]:
    """A configuration, with the paths of its data, which are in `folder`."""
    data_keys = ["data.source=x", "data.target=y"]
    if "data=text" in extra:
        data_keys += [
            f"data.train={folder}/train",
            f"data.validation={folder}/val",
            f"data.test={folder}/val",
            "batching.sentences=10",
        ]
    elif "data=mix" in extra:
        data_keys += [
            f"data.config={folder}/mix.yml",
            f"data.validation={folder}/val.tsv",
            f"data.test={folder}/val.tsv",
        ]
    else:
        return [*TINY, *extra]
    usual = [text for text in TINY if not text.startswith(("data.", "experiment="))]
    return [*usual, *extra, *data_keys, "sizes.vocabulary=40", "experiment=null"]


def forked(action: Callable[[], Any], seconds: float = 60, gigabytes: float = 0) -> tuple[str, str]:
    """Runs an action in a process; returns "done", "refused", "traceback", "hang" or "killed", and its message."""
    return ended(*started(action, gigabytes), seconds)


def started(action: Callable[[], Any], gigabytes: float = 0) -> tuple[int, int]:
    """Starts a process for an action; returns its id and the pipe from which its end can be read."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status, text = "done", ""
        try:
            os.setsid()
            faulthandler.register(signal.SIGUSR1, write)
            if gigabytes:
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + int(gigabytes * 2**30),) * 2)
            for stream in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            text = str(action())
        except UserError as error:
            status, text = "refused", str(error)
        except (Stopped, SystemExit) as end:
            status, text = "done", repr(end)
        except BaseException:
            status, text = "traceback", traceback.format_exc()
        os.write(write, f"{status}\n{text[-3000:]}".encode("utf-8", "replace"))
        os._exit(0)
    os.close(write)
    return child, read


def ended(child: int, read: int, seconds: float) -> tuple[str, str]:
    """Waits for the end of a process; returns its status and message as `forked` does."""
    until, result = time.monotonic() + seconds, 0
    while result == 0 and time.monotonic() < until:
        result, _ = os.waitpid(child, os.WNOHANG)
        time.sleep(0 if result else 0.002)
    if result == 0:
        os.kill(child, signal.SIGUSR1)  # writes the stacks of all threads to the pipe
        time.sleep(1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    if result == 0:
        return "hang", f"after {seconds} s\n{text}"
    status, _, text = text.partition("\n")
    return (status or "killed"), text


def train_in(folder: Path, extra: list[str]) -> float:
    logging.disable(logging.CRITICAL)
    os.environ["NMT_CACHE"] = f"{folder}-cache"
    return train(configure("train", [*overrides_of(extra, folder.parent), f"run_dir={folder}"]))


def go_on(folder: Path) -> float:
    logging.disable(logging.CRITICAL)
    os.environ["NMT_CACHE"] = f"{folder}-cache"
    return train(configure("train", [f"resume={folder}"]))


def killing_at(action: Callable[[], Any], moment: int) -> Callable[[], Any]:
    """The action, ended by SIGKILL at the moment-th of its opens, syncs, renames and updates."""

    def doomed() -> Any:
        count = itertools.count(1)

        def watched(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if next(count) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = function(*arguments, **options)
                if next(count) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return call

        for name in ("fsync", "replace", "link", "rename", "unlink", "mkdir"):
            setattr(os, name, watched(getattr(os, name)))
        import builtins

        builtins.open = watched(builtins.open)  # type: ignore[assignment]
        optimizer = torch.optim.Optimizer.zero_grad
        torch.optim.Optimizer.zero_grad = watched(optimizer)  # type: ignore[method-assign]
        return action()

    return doomed


def same(ours: Path, truth: Path) -> str | None:
    """Difference between two finished runs, or None."""
    for name in (ckpt.LAST, ckpt.BEST):
        mine, theirs = ckpt.read(ours / name).tensors, ckpt.read(truth / name).tensors
        if mine.keys() != theirs.keys():
            return f"{name}: other tensors"
        wrong = [key for key in theirs if not torch.equal(mine[key], theirs[key])]
        if wrong:
            return f"{name}: {wrong[:3]}"
    return (
        None
        if (ours / "test.txt").read_bytes() == (truth / "test.txt").read_bytes()
        else "test.txt"
    )


def kills(
    number: int, until: float, generator: random.Random, base: Path
) -> collections.Counter[str]:
    """Training runs that are killed up to three times, and resumed."""
    results: collections.Counter[str] = collections.Counter()
    done = 0
    truths = {}
    write_texts(base)
    for i, extra in enumerate(CONFIGURATIONS):
        truths[i] = base / f"truth-{i}"
        status, text = forked(lambda e=extra, f=truths[i]: train_in(f, e))  # type: ignore[misc]
        if status != "done":
            raise SystemExit(f"{extra}: {status} {text}")
    for trial in itertools.count():
        if done >= number or time.monotonic() > until:
            return results
        i = trial % len(CONFIGURATIONS)
        folder = base / f"trial-{trial}"
        begin: Callable[[], Any] = lambda f=folder, e=CONFIGURATIONS[i]: train_in(f, e)  # type: ignore[misc]  # noqa: E731
        status, text = "killed", ""
        for _ in range(4):
            action = begin if not (folder / ckpt.LAST).exists() else lambda f=folder: go_on(f)  # type: ignore[misc]
            status, text = forked(killing_at(action, generator.randrange(1, 160)))
            if status == "refused" and "a DataLoader worker was killed" in text:
                status = "killed"  # the moment came in a process of the training
            if status != "killed":
                break
            done += 1
        if status == "killed":
            action = begin if not (folder / ckpt.LAST).exists() else lambda f=folder: go_on(f)  # type: ignore[misc]
            status, text = forked(action)
        if status == "done" and not (folder / "results.json").exists():
            status, text = forked(lambda f=folder: go_on(f))  # type: ignore[misc]
        differs = same(folder, truths[i]) if status == "done" else f"{status}: {text[-600:]}"
        litter = [path.name for path in folder.glob(".*")] if folder.exists() else []
        result = (
            "identical" if differs is None else "different" if status == "done" else "dead folder"
        )
        results[result if not litter else f"{result}, litter"] += 1
        if differs or litter:
            print(f"  kill {trial} {CONFIGURATIONS[i]}: {differs} {litter}", file=sys.stderr)
        else:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        results["SIGKILLs"] = done
    raise AssertionError


ODD = (
    b"\r",
    b"\n",
    b'"',
    b"\x00",
    b"nan",
    b"1e999",
    b"9" * 400,
    b"[" * 3000,
    b"\xed\xa0\x80",
    b"null",
    b"\\ud800",
)


def mutated(data: bytes, generator: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(generator.choice((1, 1, 1, 2, 5))):
        kind, place = (
            generator.randrange(5),
            generator.randrange(max(1, min(len(changed), generator.choice((200, 10**9))))),
        )
        if kind == 0 and changed:
            changed[min(place, len(changed) - 1)] ^= 1 << generator.randrange(8)
        elif kind == 1:
            del changed[place:]
        elif kind == 2:
            changed[place:place] = bytes(
                generator.randrange(256) for _ in range(generator.randrange(1, 20))
            )
        elif kind == 3:
            del changed[place : place + generator.randrange(1, 50)]
        else:
            changed[place:place] = generator.choice(ODD)
    return bytes(changed)


def with_header(path: Path, generator: random.Random) -> bytes:
    """A checkpoint with a valid checksum and an odd value in its configuration or state."""
    saved = ckpt.read(path)
    odd: tuple[Any, ...] = (
        None, -1, 0, 10**7, 10**9, 10**400, 1e308, float("nan"), "x", "", [], {}, [[]], True, "os.system", "${oc.env:HOME}",
        "???", -(10**9), "nmt.model.decoder.luong.Luong",
    )  # fmt: skip

    def change(node: Any) -> Any:
        if isinstance(node, dict) and node and generator.random() < 0.93:
            key = generator.choice(sorted(node))
            if generator.random() < 0.06:
                return {k: v for k, v in node.items() if k != key}
            return {**node, key: change(node[key])}
        return generator.choice(odd)

    name = generator.choice([key for key in saved.meta if key != "format"])
    file = path.with_name("with-header")
    tensors = dict(saved.tensors)
    if generator.random() < 0.1:
        key = generator.choice(sorted(tensors))
        tensors[key] = generator.choice(
            (torch.zeros(0), torch.full((3, 3), float("nan")), torch.zeros(1, dtype=torch.int8))
        )
    ckpt.write(file, {**saved.meta, name: change(saved.meta[name])}, tensors)
    return file.read_bytes()


def mutants(
    number: int, until: float, generator: random.Random, base: Path
) -> collections.Counter[str]:
    """Files that are not what they should be, each read in a process of its own with a limit on time and memory."""
    run = base / "mutated"
    status, text = forked(lambda: train_in(run, ["decoder=luong"]))
    if status != "done":
        raise SystemExit(text)
    work = base / "work"
    work.mkdir()
    model, table, vectors, wishes, lines = (
        work / n for n in ("m.safetensors", "t", "v.txt", "c.jsonl", "lines")
    )
    lines.write_text("a b c\nd e\n")
    csv = "en,de\n" + "".join(f'"w{i}, x",y {i}\n' for i in range(9))
    originals = {
        "csv": csv.encode(), "tsv": csv.replace(", ", " ").replace(",", "\t").encode(),
        "jsonl": b"".join(b'{"en": "a %d", "de": "b"}\n' % i for i in range(9)),
        "vectors": b"9 3\n" + b"".join(b"word%d 0.1 -2 3e-2\n" % i for i in range(9)),
        "constraints": b'{"prefix": "a", "required": ["b"]}\n{"forbidden": ["c", "d"]}\n',
    }  # fmt: skip
    whole = {name: (run / name).read_bytes() for name in (ckpt.BEST, ckpt.LAST)}

    def load_it() -> list[str]:
        translator = nmt.load(model, device="cpu")
        return translator.translate(["a b c d e"])  # type: ignore[union-attr,return-value]

    def resume_it() -> float:
        logging.disable(logging.CRITICAL)
        folder = Path(tempfile.mkdtemp(dir=work))
        (folder / ckpt.LAST).write_bytes(model.read_bytes())
        return train(configure("train", [f"resume={folder}", "trainer.max_epochs=3"]))

    def table_of(form: Any) -> Callable[[], Any]:
        return lambda: TableFiles(
            format=form, train=str(table), validation=str(table), source="en", target="de"
        ).load()

    kinds: dict[str, tuple[Path, Callable[[], bytes], Callable[[], Any]]] = {
        "checkpoint, bytes": (model, lambda: mutated(whole[ckpt.BEST], generator), load_it),
        "checkpoint, header": (model, lambda: with_header(run / ckpt.BEST, generator), load_it),
        "resume, bytes": (model, lambda: mutated(whole[ckpt.LAST], generator), resume_it),
        "resume, header": (model, lambda: with_header(run / ckpt.LAST, generator), resume_it),
        "vectors": (vectors, lambda: mutated(originals["vectors"], generator), lambda: read_vectors(str(vectors))),
        "constraints": (
            wishes, lambda: mutated(originals["constraints"], generator),
            lambda: list(InputLines(str(lines), "strict", constraints=str(wishes)).chunks()),
        ),
        **{
            form: (table, lambda form=form: mutated(originals[form], generator), table_of(form))
            for form in ("csv", "tsv", "jsonl")
        },
    }  # type: ignore[misc]  # fmt: skip
    result: collections.Counter[str] = collections.Counter()
    names = list(kinds)
    truth = ""
    sound = {"checkpoint": whole[ckpt.BEST], "resume": whole[ckpt.LAST], **originals}
    for name, (
        path,
        _,
        read,
    ) in kinds.items():  # what was not changed is good: a trial that always refuses shows nothing
        path.write_bytes(sound[name.partition(",")[0]])
        status, text = forked(read)
        if status != "done":
            raise SystemExit(f"{name}, unchanged: {status} {text}")
        truth = text if name == "checkpoint, bytes" else truth
    for trial in range(number):
        if time.monotonic() > until:
            break
        name = names[trial % len(names)]
        path, make, read = kinds[name]
        content = make()
        path.write_bytes(content)
        status, text = forked(read, seconds=10, gigabytes=1)
        if name == "checkpoint, bytes" and status == "done" and text != truth:
            status = "silently wrong"
        if status == "traceback" and "MemoryError" in text:
            status = "over 1 GB"
        result[f"{name}: {status}"] += 1
        if status not in ("done", "refused"):
            kept = base / f"broken-{trial}"
            kept.write_bytes(content)
            print(
                f"  mutant {trial} ({name}): {status}, kept as {kept}\n{text[-900:]}",
                file=sys.stderr,
            )
    return result


def races(
    number: int, until: float, generator: random.Random, base: Path
) -> collections.Counter[str]:
    """Processes that do the same to the same run at the same moment."""
    result: collections.Counter[str] = collections.Counter()
    finished = base / "finished"
    forked(lambda: train_in(finished, ["decoder=luong"]))
    for trial in range(-(-number // 4)):
        if time.monotonic() > until:
            break
        folder = base / f"race-{trial}"
        resume = trial % 2 == 1
        if resume:
            folder.mkdir()
            (folder / ckpt.LAST).write_bytes((finished / ckpt.LAST).read_bytes())
        at = time.time() + 0.05
        read, write = os.pipe()
        children = []
        for role in range(4):
            child = os.fork()
            children.append(child)
            if child:
                continue
            logging.disable(logging.CRITICAL)
            for stream in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            time.sleep(max(0, at - time.time() + generator.random() * 0.01 * role))
            try:
                if role == 3:
                    for _ in range(30):
                        if (folder / ckpt.LAST).exists():
                            ckpt.read(folder / ckpt.LAST)
                        time.sleep(0.005)
                    word = b"r"
                elif resume:
                    train(
                        configure(
                            "train", [f"resume={folder}", f"trainer.max_epochs={3 + trial % 3}"]
                        )
                    )
                    word = b"w"
                else:
                    train_in(folder, ["decoder=luong"])
                    word = b"w"
            except UserError as error:
                word = (
                    b"n"
                    if "writing to it" in str(error) or "contains another run" in str(error)
                    else b"?"
                )
            except BaseException:
                word = b"!"
            os.write(write, word)
            os._exit(0)
        for child in children:
            os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            words = pipe.read().decode()
        result["processes"] += 4
        result["wrote"] += words.count("w")
        result["refused"] += words.count("n")
        result["read"] += words.count("r")
        broken = words.count("!") + words.count("?") + (4 - len(words)) + (words.count("w") == 0)
        if not resume and words.count("w") != 1:
            broken += 1
        result["collisions"] += broken
        if broken:
            print(f"  race {trial}: {sorted(words)}", file=sys.stderr)
    return result


def deaths(
    number: int, until: float, generator: random.Random, base: Path
) -> collections.Counter[str]:
    """Two ranks of which one is killed again and again, against two that are left alone."""
    result: collections.Counter[str] = collections.Counter()
    write_texts(base)
    tiny = [
        *overrides_of(["decoder=luong", "data=mix", "store=disk"], base),
        "trainer.max_epochs=12",
        "batching.sentences=4",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NMT_CACHE": str(base / "cache")}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1000",
        "-m",
        "nmt.train",
    ]

    def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, *tiny, *more, f"run_dir={folder}"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    start(base / "truth").wait()
    trial = 0
    while result["SIGKILLs"] < number and time.monotonic() < until:
        trial += 1
        process = start(base / f"run-{trial}")
        for _ in range(generator.randrange(3, 9)):
            try:
                process.wait(generator.uniform(4, 14))
                break
            except subprocess.TimeoutExpired:
                listed = subprocess.run(
                    ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
                )
                ranks = [int(pid) for pid in listed.stdout.split()]
                if ranks:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(generator.choice(ranks), signal.SIGKILL)
                        result["SIGKILLs"] += 1
        try:
            process.wait(180)
        except subprocess.TimeoutExpired:
            process.kill()
        status = "dead" if process.returncode else same(base / f"run-{trial}", base / "truth")
        result[
            "identical" if status is None else "different" if process.returncode == 0 else "dead"
        ] += 1
    return result


def ranked(actions: list[Callable[[], Any]]) -> list[tuple[str, str]]:
    """Runs one action in each of several ranks; returns their statuses and messages."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def as_rank(number: int) -> Any:
        world = {"WORLD_SIZE": str(len(actions)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({**world, "RANK": str(number), "LOCAL_RANK": str(number)})
        return actions[number]()

    children = [started(functools.partial(as_rank, number)) for number in range(len(actions))]
    return [ended(*child, seconds=300) for child in children]


def job_actions(base: Path, run: Path) -> dict[str, Callable[[Path], Any]]:
    """The commands that several ranks share, as functions of the path of their output."""
    text = base / "train.x"
    extra = ["decoder=luong", "data=text", "store=memory", "trainer.max_epochs=1"]
    tiny = [*overrides_of(extra, base), f"synthetic.text={base}/train.y", "synthetic.search=greedy"]
    both = [f"source={text}", f"target={base}/train.y"]
    words = {
        "translate": [f"model={run}", f"input={text}", "search=greedy", "device=cpu"],
        "score": [f"model={run}", *both, "device=cpu"],
        "align": [f"model={run}", *both, "device=cpu"],
        "backtranslate": [*tiny, "device=cpu"],
    }

    def act(command: str, output: Path) -> Any:
        logging.disable(logging.CRITICAL)
        os.environ["NMT_CACHE"] = f"{base}/cache"
        key = "run_dir" if command == "backtranslate" else "output"
        settings = configure(command, [*words[command], f"{key}={output}"])
        return importlib.import_module(f"nmt.{command}").run(settings)

    return {command: functools.partial(act, command) for command in words}


def content_of(output: Path) -> dict[str, Any]:
    """Content that kills must not change: the bytes of text files, and the weights of models."""
    if output.is_file():
        return {"": output.read_bytes()}
    names = ("translations", "synthetic.x", "synthetic.y", "mixture.yml")
    texts = {name: (output / name).read_bytes() for name in names}
    tensors = ckpt.read(output / "model" / ckpt.BEST).tensors
    weights = {key: value.numpy().tobytes() for key, value in tensors.items()}
    return {**texts, **weights, "litter": sorted(path.name for path in output.glob("*.part*"))}


def jobs(
    number: int, until: float, generator: random.Random, base: Path
) -> collections.Counter[str]:
    """Long jobs of two ranks, of which one is killed up to four times, and the same command again."""
    for module in (file_alignment, input_lines, scoring, shared_output):
        module.CHUNK = 3  # type: ignore[attr-defined]
    torchrun.ROLL_CALL_SECONDS = 0.3
    torchrun.MEETING_TIMEOUT = datetime.timedelta(seconds=10)  # torchrun would end the other rank
    result: collections.Counter[str] = collections.Counter()
    write_texts(base)
    run = base / "model"
    status, text = forked(lambda: train_in(run, ["decoder=luong"]))
    if status != "done":
        raise SystemExit(text)
    actions = job_actions(base, run)
    truths = {}
    for name, action in actions.items():
        truth = base / f"truth-{name}"
        alone = 2 if name == "backtranslate" else 1  # weights depend on the number of ranks
        ends = ranked([functools.partial(action, truth)] * alone)
        if {status for status, _ in ends} != {"done"}:
            raise SystemExit(f"{name}: {ends}")
        truths[name] = content_of(truth)
    for trial in itertools.count():
        if result["SIGKILLs"] >= number or time.monotonic() > until:
            return result
        name = list(actions)[trial % len(actions)]
        output = base / f"trial-{trial}"
        whole: Callable[[], Any] = functools.partial(actions[name], output)
        problems = []
        for _ in range(4):
            victim = generator.randrange(2)
            moment = generator.randrange(1, 900 if name == "backtranslate" else 170)
            doomed = [killing_at(whole, moment) if r == victim else whole for r in (0, 1)]
            ends = ranked(doomed)
            problems += [end for end in ends if end[0] in ("traceback", "hang")]
            if "killed" not in {status for status, _ in ends}:
                break
            result["SIGKILLs"] += 1
            result[f"SIGKILLs of rank {victim}, {name}"] += 1
        else:
            ends = ranked([whole, whole])
        problems += [end for end in ends if end[0] != "done"]
        if not problems:
            content = content_of(output)
            differences = [key for key in truths[name] if content.get(key) != truths[name][key]]
            problems += [("different", key) for key in differences]
        problems += [("litter", path.name) for path in base.glob(f"*trial-{trial}.*")]
        result["broken" if problems else "identical"] += 1
        total = result["SIGKILLs"]
        print(f"  job {trial}, {name}: {total} SIGKILLs so far", file=sys.stderr)
        if problems:
            print(f"  job {trial}, {name}: {problems}", file=sys.stderr)
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--mutants", type=int, default=5000)
    parser.add_argument("--races", type=int, default=1000)
    parser.add_argument("--deaths", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3600, help="at most, for each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plots.learning_curve = lambda *_: None  # type: ignore[assignment]
    TranslationTask.draw = lambda *_: None  # type: ignore[method-assign]
    generator, broken = random.Random(options.seed), 0
    base = Path(tempfile.mkdtemp(prefix="nmt-break-"))
    print(f"in {base}", file=sys.stderr)
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        train_in(
            base / "first", ["decoder=luong"]
        )  # what is imported on the way is imported once, for all processes
    trials = [
        ("kills", kills, options.kills),
        ("mutants", mutants, options.mutants),
        ("races", races, options.races),
    ]
    trials += [("deaths", deaths, options.deaths), ("jobs", jobs, options.jobs)]
    for name, action, number in trials:
        if not number:
            continue
        began = time.monotonic()
        (base / name).mkdir()
        result = action(number, began + options.seconds, generator, base / name)
        print(f"{name} ({time.monotonic() - began:.0f} s)")
        for key, count in sorted(result.items()):
            print(f"  {key}: {count:,}")
        good = ("identical", "SIGKILLs", "processes", "wrote", "read", "refused")
        broken += sum(
            n
            for key, n in result.items()
            if key not in good
            and not key.startswith("SIGKILLs")
            and not key.endswith((": done", ": refused"))
        )
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
