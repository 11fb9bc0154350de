"""Comparison of a GPU with the CPU, and figures of the GPU, as a Markdown page to paste.

    python scripts/gpu_check.py [--device cuda] [--decoders NAME …] [--parts training decoding] [--size 512]
                                [--updates 60] [--out FILE.md]

The network has random weights and the reference sizes of `benchmark.py`; the sentences are random tokens, so no data is
needed. The first part compares losses, gradients and translations with those of the CPU, for every decoder, search and
precision, with and without CUDA graphs. The second part measures the GPU: tokens and sentences per second, launches by the
host, memory, and the share of the floor. The floor is a lower bound of the time: the time of the matrix multiplications
alone, from the throughput measured on the same GPU.
With `--device cpu`, the first part alone runs.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmark import REFERENCE, Costs
from torch.profiler import ProfilerActivity, profile

from nmt import components
from nmt.configuration.compose import compose
from nmt.configuration.yaml_files import CONF
from nmt.foundation.devices import processor_name
from nmt.foundation.interfaces import BOS, EOS, PAD, Batch, Hypothesis, Request
from nmt.inference.networks import Networks
from nmt.metric import Metric
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.diverse import Diverse
from nmt.search.greedy import Greedy
from nmt.search.mbr import MBR
from nmt.search.sample import Sample
from nmt.tokenizer.columns import Columns
from nmt.training.callback import Callback, Update
from nmt.training.gradient import AUTOCAST
from nmt.training.schedule import Constant
from nmt.training.task import Task, Validation, never
from nmt.training.trainer import Trainer

VOCABULARY = 8000
SEARCHES: dict[str, Callable[[], Any]] = {
    "greedy": Greedy,
    "beam": lambda: Beam(width=5),
    "diverse": lambda: Diverse(width=6, groups=3),
    "sample": lambda: Sample(n_best=2),
    "mbr": lambda: MBR(candidates=4),
}
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaGraphLaunch")
"""Calls of the host that start work on the GPU."""
EVERY = 10
"""Updates between two reports of the trainer."""
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.02}
"""Largest relative difference of losses and gradient norms from the CPU's float32."""


def choices(group: str) -> list[str]:
    """The YAML files of a configuration group."""
    return sorted(path.stem for path in Path(CONF, group).glob("*.yaml"))


def network(decoder: str, size: int, *more: str) -> Seq2Seq:
    """The network of the benchmark with random weights; all sizes are divided alike for a smaller `size`."""
    attention = "none" if decoder == "fixed" else "concat"
    sizes = (
        f"model.embedding_size={size // 2}", f"encoder.hidden_size={size // 2}", f"decoder.hidden_size={size}",
        f"decoder.readout_size={size}", *(() if attention == "none" else (f"attention.size={size}",)),
    )  # fmt: skip
    overrides = [*REFERENCE, f"decoder={decoder}", f"attention={attention}", *sizes, *more]
    torch.manual_seed(1)
    vocabulary = min(VOCABULARY, 16 * size)
    return components.network(compose("train", overrides), vocabulary, vocabulary)


def batches(count: int, sentences: int, vocabulary: int) -> list[Batch]:
    """Random sentence pairs of 6 to 20 tokens on each side; those of a batch have similar lengths."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(count):
        usual = int(torch.randint(8, 18, (), generator=generator))
        sides = []
        for _ in range(2):
            lengths = usual + torch.randint(-2, 3, (sentences,), generator=generator)
            ids = torch.randint(4, vocabulary, (sentences, int(lengths.max())), generator=generator)
            positions = torch.arange(ids.size(1))
            ids = ids.masked_fill(positions >= lengths.unsqueeze(1), PAD)
            sides.append((ids.scatter(1, lengths.unsqueeze(1) - 1, EOS), lengths))
        (source, source_lengths), (targets, target_lengths) = sides
        inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], 1)
        made.append(
            Batch(source, source_lengths, inputs, targets, num_tokens=int(target_lengths.sum()))
        )
    return made


class Fixed(Task):
    """Trains on batches that are there already."""

    command, unit, metric, title, capture_obstacle = "train", "tokens", "loss", "", ""
    better = Metric(name="loss").better
    introduction = test = draw = next_commands = None  # type: ignore[assignment]

    def __init__(self, network: Seq2Seq, data: Sequence[Batch]) -> None:
        self.network, self.data = network, list(data)
        self.goal = components.make(compose("train", [*REFERENCE]), "objective")

    def __len__(self) -> int:
        return len(self.data)

    def read(self, indices: Sequence[int]) -> Iterator[Batch]:
        return (self.data[i] for i in indices)

    def objective(self, network: Any, batch: Any, update: int, total: int) -> Any:
        return self.goal(network, batch, update, total)

    def batches(self, epoch: int) -> Any:
        return self

    def validate(self, interrupted: Callable[[], bool] = never) -> Validation:
        return Validation(metrics={"loss": 1.0})


class NoStore:
    """Saves nothing."""

    save_last = save_best = save_snapshot = load_last = average = lambda *_: None


class Watch(Callback):
    """Reports of the trainer, and the launches of the host between the last two.

    last: update of the last report
    """

    def __init__(self, last: int) -> None:
        self.last, self.updates, self.launches = last, [], math.nan
        self.profiler: Any = None

    def on_update(self, update: Update) -> None:
        self.updates.append(update)
        if update.update == self.last - EVERY and torch.cuda.is_available():
            self.profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
            self.profiler.__enter__()
        elif self.profiler is not None:
            self.profiler.__exit__(None, None, None)
            self.launches = launches(self.profiler) / EVERY
            self.profiler = None


def launches(profiler: Any) -> int:
    """Number of times that the host started work on the GPU."""
    return sum(event.count for event in profiler.key_averages() if event.key in LAUNCHES)


def trained(
    model: Seq2Seq, data: Sequence[Batch], precision: str, capture: bool, updates: int
) -> Watch:
    """Reports of a training run; the last one is also profiled."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    watch = Watch(updates)
    trainer = Trainer(
        max_epochs=updates, max_updates=updates, log_every=EVERY, precision=precision,
        capture=capture, validate_every=2 * updates, save_every=60.0,
    )  # type: ignore[arg-type]  # fmt: skip
    trainer.fit(
        Fixed(model, data), optimizer=optimizer, schedule=Constant(), callbacks=[watch],
        store=NoStore(),
    )  # fmt: skip
    return watch


def compare_training(device: torch.device, decoders: Sequence[str], size: int) -> list[list[str]]:
    """Loss and gradient norm of the first updates, against the CPU in float32, for every decoder and precision."""
    rows = []
    data = batches(3, 8, min(VOCABULARY, 16 * size))
    for decoder in decoders:
        plain = network(decoder, size, "model.dropout=0", "model.readout_dropout=0")
        truth = trained(copy.deepcopy(plain), data, "float32", False, EVERY).updates[0]
        for precision in precisions(device):
            for capture in (False, True):
                model = copy.deepcopy(plain).to(device)
                actual = trained(model, data, precision, capture, EVERY).updates[0]
                loss = abs(actual.loss / truth.loss - 1)
                norm = abs(actual.gradient_norm / truth.gradient_norm - 1)
                right = loss < TOLERANCES[precision] and norm < 10 * TOLERANCES[precision]
                rows.append([
                    decoder, precision, "yes" if capture else "no", f"{loss:.1e}", f"{norm:.1e}",
                    "equal" if right else "**different**",
                ])  # fmt: skip
    return rows


def precisions(device: torch.device) -> list[str]:
    """The precisions of training that the comparison has for a device."""
    return list(AUTOCAST) if device.type == "cuda" else ["float32", "bfloat16"]


def translated(
    networks: Networks, data: Sequence[Batch], search: Any, captured: bool
) -> list[list[Hypothesis]]:
    """Hypotheses of all sources."""
    actual = []
    for batch in data:
        sources = [
            row[: length - 1].tolist()
            for row, length in zip(batch.source, batch.source_lengths, strict=True)
        ]
        requests = [Request(max_length=2 * len(ids) + 10, seed=i) for i, ids in enumerate(sources)]
        with torch.inference_mode(), networks.generating():
            memories = networks.memories(sources, captured)
            step, state = networks.first_step(memories, len(sources) if captured else None)
            actual += search(step, state, requests)
    return actual


def compare_search(device: torch.device, decoders: Sequence[str], size: int) -> list[list[str]]:
    """Share of sentences with the CPU's first hypothesis, for every decoder, search and precision."""
    rows = []
    data = batches(2, 8, min(VOCABULARY, 16 * size))
    for decoder in decoders:
        model = network(decoder, size).eval()
        here = Networks([model], Columns())
        there = copy.deepcopy(model).to(device)
        for name, search in SEARCHES.items():
            truth = translated(here, data, search(), False)
            for precision in ("float32", "bfloat16"):
                for captured in (False, True):
                    networks = Networks([there], Columns(), precision, capture=captured)
                    actual = translated(networks, data, search(), captured)
                    pairs = list(zip(actual, truth, strict=True))
                    share = sum(a[0].tokens == b[0].tokens for a, b in pairs) / len(pairs)
                    # Random networks have candidates of almost equal probability.
                    verdict = "equal" if share >= 0.9 else "**different**"
                    if precision != "float32":
                        verdict = "rounded"
                    rows.append([
                        decoder, name, precision, "yes" if captured else "no", f"{share:.0%}", verdict,
                    ])  # fmt: skip
    return rows


def product_rate(device: torch.device, precision: str, size: int) -> float:
    """Multiply-adds per second of the product of the output layer."""
    dtype = AUTOCAST[precision] or torch.float32
    m, k, n = 1280, size, VOCABULARY
    a, b = (torch.randn(*shape, device=device, dtype=dtype) for shape in ((m, k), (k, n)))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(50):
        a @ b
    torch.cuda.synchronize()
    return 50 * m * k * n / (time.perf_counter() - began)


def needed(model: Seq2Seq, batch: Batch) -> int:
    """Multiply-adds of a forward pass over the real tokens of a batch."""
    pairs = int(((batch.targets != PAD).sum(1) * batch.source_lengths).sum())
    return Costs.of(model).forward(int(batch.source_lengths.sum()), batch.num_tokens, pairs)


def measure_training(
    device: torch.device, decoders: Sequence[str], size: int, updates: int
) -> list[list[str]]:
    """Speed, launches and memory of training, for every decoder and precision, with and without CUDA graphs."""
    rows = []
    data = batches(20, 80, VOCABULARY)
    for decoder in decoders:
        for precision in AUTOCAST:
            rate = product_rate(device, precision, size)
            for capture in (False, True):
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                model = network(decoder, size).to(device)
                watch = trained(model, data, precision, capture, updates)
                # All shapes are recorded during the first reports; the last report is profiled.
                speed = statistics.median(u.speed for u in watch.updates[-4:-1])
                work = 3 * sum(needed(model, batch) for batch in data)
                floor = work / rate / sum(batch.num_tokens for batch in data)  # seconds per token
                rows.append([
                    decoder, precision, "yes" if capture else "no", f"{speed:,.0f}",
                    f"{watch.launches:,.0f}", f"{torch.cuda.max_memory_allocated() / 2**20:,.0f}",
                    f"{floor * speed:.1%}",
                ])  # fmt: skip
    return rows


def measure_search(device: torch.device, decoders: Sequence[str], size: int) -> list[list[str]]:
    """Speed and launches of decoding, with and without CUDA graphs."""
    rows = []
    data = batches(5, 80, VOCABULARY)
    sentences = sum(len(batch.source) for batch in data)
    for decoder in decoders:
        model = network(decoder, size).to(device).eval()
        for name in ("greedy", "beam"):
            for precision in ("float32", "bfloat16"):
                for captured in (False, True):
                    networks = Networks([model], Columns(), precision, capture=captured)
                    translated(networks, data, SEARCHES[name](), captured)  # warms up and records
                    began = time.perf_counter()
                    actual = translated(networks, data, SEARCHES[name](), captured)
                    took = time.perf_counter() - began
                    steps = max(len(several[0].tokens) for several in actual) + 1
                    with profile(
                        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]
                    ) as record:
                        translated(networks, data[:1], SEARCHES[name](), captured)
                    rows.append([
                        decoder, name, precision, "yes" if captured else "no",
                        f"{sentences / took:,.0f}", f"{launches(record) / steps:,.0f}",
                    ])  # fmt: skip
    return rows


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PARTS: dict[str, tuple[str, list[str], Callable[..., list[list[str]]]]] = {
    "compare_training": (
        "Training against the CPU",
        ["decoder", "precision", "CUDA graphs", "loss differs by", "gradient norm differs by", "verdict"],
        compare_training,
    ),
    "compare_search": (
        "Searches against the CPU",
        ["decoder", "search", "precision", "CUDA graphs", "same translations", "verdict"],
        compare_search,
    ),
    "training": (
        "Speed of training",
        [
            "decoder", "precision", "CUDA graphs", "target tokens/s", "launches per update", "memory (MB)",
            "share of the floor",
        ],
        measure_training,
    ),
    "decoding": (
        "Speed of decoding",
        ["decoder", "search", "precision", "CUDA graphs", "sentences/s", "launches per step"],
        measure_search,
    ),
}  # fmt: skip
"""Heading, columns and function of each part of the page."""


def page(
    device: torch.device, decoders: Sequence[str], size: int, updates: int, parts: Sequence[str]
) -> Iterator[str]:
    """The sections of the page, each as soon as it is measured."""
    yield f"# {processor_name(device)}\n\nPyTorch {torch.__version__}, size {size}.\n"
    for name in parts:
        if device.type != "cuda" and not name.startswith("compare"):
            continue
        heading, titles, function = PARTS[name]
        began = time.monotonic()
        compares = name.startswith("compare")
        options = [updates] if name == "training" else []
        rows = function(device, decoders, min(size, 128) if compares else size, *options)
        print(f"{heading}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        yield f"## {heading}\n\n{table(titles, rows)}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--decoders", nargs="+", default=choices("decoder"))
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        print(
            "gpu_check: no GPU found; --device cpu runs the comparison on the CPU", file=sys.stderr
        )
        return 1
    device = torch.device(arguments.device)
    text = ""
    for section in page(
        device, arguments.decoders, arguments.size, arguments.updates, arguments.parts
    ):
        print(section, flush=True)
        text += section + "\n"
        if arguments.out:
            arguments.out.write_text(text, encoding="utf-8")
    return int("**different**" in text)


if __name__ == "__main__":
    raise SystemExit(main())
