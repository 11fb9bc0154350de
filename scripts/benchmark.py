"""Benchmark of training, decoding and start-up, as a fraction of the machine's matrix products.

    python scripts/benchmark.py data=text data.train=DIR/train data.validation=DIR/val data.test=DIR/test \
        data.source=en data.target=de [--model RUN_DIR] [--out benchmark.json] [--compare OLD.json]

Trains every decoder x {concat, general, dot} for a few batches at the reference setting (GRU 256 per direction,
decoder 512, embeddings 256, attention 512, readout 512, vocabulary 8k, nothing tied, 80 sentences per batch),
in float32 and bfloat16, configurations alternating. Decodes the test part with a trained model, if given, precisions
alternating. Times start-up. With --memory, measures the peak memory of a training of multi30k_best. Figures are medians;
the machine's product rates are measured in the same run. The floor counts each product once forward and twice backward,
for real tokens only, at the machine's rate. `growth.py` beside this file measures how cost grows with the sizes.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from nmt import components, loading
from nmt.configuration.compose import compose
from nmt.data.batching import padding_share
from nmt.data.epoch_batches import EpochBatches
from nmt.data.preparation import prepare
from nmt.foundation.interfaces import Batch
from nmt.foundation.processes import keep_freed_memory
from nmt.model.decoder.readout import Maxout
from nmt.model.layers.packed import int8_is_native
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy

REFERENCE = (
    "experiment=null",
    "model.embedding_size=256", "encoder.hidden_size=256", "decoder.hidden_size=512", "decoder.readout_size=512",
    "model.tying=none", "model.dropout=0.3", "model.readout_dropout=0.3", "tokenizer=unigram",
    "tokenizer.vocabulary_size=8000", "tokenizer.split_digits=false", "batching.sentences=80", "optimizer.lr=0.001",
)  # fmt: skip
PAIRS = [
    (d, a) for d in ("bahdanau", "luong_feed", "luong") for a in ("concat", "general", "dot")
] + [("fixed", "none")]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def seconds(action: Callable[[], Any], least: float = 0.0) -> float:
    """Seconds per call, over at least `least` seconds."""
    began, calls = time.perf_counter(), 0
    while not calls or time.perf_counter() - began < least:
        action()
        calls += 1
    return (time.perf_counter() - began) / calls


def product_rates(repeats: int) -> dict[str, float]:
    """Multiply-adds per second of the products a training step is made of, weighted as they occur in it; int8, which only
    generation uses, at the size of the output layer."""
    shapes = {
        (1280, 512, 8000): 5.2e9,
        (1280, 512, 1536): 1e9,
        (80, 512, 2048): 1.3e9,
        (1280, 1280, 1024): 1.7e9,
    }
    spent: dict[str, list[float]] = {name: [0.0] * repeats for name in DTYPES}
    for (m, k, n), weight in shapes.items():
        operands = {
            name: (torch.randn(m, k).to(t), torch.randn(k, n).to(t)) for name, t in DTYPES.items()
        }
        for i in range(-1, repeats):  # the first round warms up
            for name, (a, b) in operands.items():
                took = seconds(lambda a=a, b=b: a @ b, 0.1)  # type: ignore[misc]
                spent[name][i] += (i >= 0) * weight * took / (m * k * n)
    rates = {
        name: sum(shapes.values()) / statistics.median(result) for name, result in spent.items()
    }
    if int8_is_native():
        m, k, n = 1280, 512, 8000
        rows = torch.randint(0, 256, (m, k), dtype=torch.uint8)
        weights = torch.ops.onednn.qlinear_prepack(
            torch.randint(-127, 128, (n, k), dtype=torch.int8), None
        )
        scale, middle = torch.ones(1), torch.full((1,), 128, dtype=torch.int32)
        scales, zeros = torch.ones(n), torch.zeros(n, dtype=torch.int32)
        multiply = lambda: torch.ops.onednn.qlinear_pointwise(  # noqa: E731
            rows, scale, middle, weights, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        multiply()
        rates["int8"] = (
            m * k * n / statistics.median(seconds(multiply, 0.1) for _ in range(repeats))
        )
    return rates


@dataclass(frozen=True)
class Costs:
    """Multiply-adds of one forward pass, by what they are needed for."""

    per_source: int
    per_target: int
    per_pair: int

    @classmethod
    def of(cls, model: Seq2Seq) -> Costs:
        """Counted from the paper's equations and the model's sizes, not from what the code happens to do."""
        decoder, e, m = (
            model.decoder,
            model.source_embedding.embedding_dim,
            model.decoder.memory_size,
        )
        h, q, d, vocabulary = (
            m // 2,
            decoder.hidden_size,
            decoder.readout_size,
            model.output.weight.size(0),
        )
        gates, kind = 3, type(decoder).__name__
        fed = {"Bahdanau": e + m, "Fixed": e + m, "Luong": e, "LuongFeed": e + d}
        fed["Conditional"] = e + m + q  # two cells, the second of which reads the context
        wide = 2 * (q + e + m) if isinstance(getattr(decoder, "readout", None), Maxout) else q + m
        wide += e * (kind == "Conditional")
        source, target, pair = (
            2 * gates * h * (e + h),
            gates * q * (fed[kind] + q) + d * wide + d * vocabulary,
            0,
        )
        if decoder.attends:
            score = type(decoder.attention.score).__name__
            hidden = decoder.attention.score.query_layer
            a = 0 if hidden is None else hidden.out_features
            source += {"Concat": m * a, "General": m * q, "Dot": 0}[score]
            target += q * a
            pair = m + (a or q)
        return cls(source, target, pair)

    def forward(self, source: int, target: int, pairs: int) -> int:
        """`source` and `target` tokens, `pairs` = Σ source length x target length."""
        return source * self.per_source + target * self.per_target + pairs * self.per_pair


def peak_bytes(action: Callable[[], Any]) -> int:
    """The most memory that tensors made during an action held at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        action()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    stored = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        stored += event.nbytes()
        most = max(most, stored)
    return most


class Training:
    """One configuration, ready to take training steps."""

    def __init__(
        self, overrides: list[str], source_vocabulary: int, target_vocabulary: int
    ) -> None:
        config = compose("train", [*REFERENCE, *overrides])
        torch.manual_seed(1)
        self.model = components.network(config, source_vocabulary, target_vocabulary)
        self.objective = components.make(config, "objective")
        self.optimizer = components.make(
            config, "optimizer", parameters=list(self.model.parameters())
        )

    def step(self, batch: Batch, precision: str) -> tuple[float, float, float]:
        """Seconds of forward, backward and optimizer."""
        times = [time.perf_counter()]
        with torch.autocast("cpu", DTYPES[precision], enabled=precision != "float32"):
            loss = self.model(self.objective, batch, 0)
        times.append(time.perf_counter())
        (loss.total / batch.num_tokens).backward()
        times.append(time.perf_counter())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter())
        return times[1] - times[0], times[2] - times[1], times[3] - times[2]

    def floor(self, batch: Batch, rate: float) -> float:
        """Seconds that the products of a step must take at `rate` multiply-adds per second."""
        pairs = int(((batch.targets != 0).sum(1) * batch.source_lengths).sum())
        source = int(batch.source_lengths.sum())
        return 3 * Costs.of(self.model).forward(source, batch.num_tokens, pairs) / rate


def training(overrides: list[str], rates: dict[str, float], repeats: int) -> list[dict[str, Any]]:
    """Every configuration on the same batches, in turn, `repeats` times."""
    config = compose("train", [*overrides, *REFERENCE])
    parts = (components.make(config, group) for group in ("filters", "tokenizer"))
    data = prepare(components.make(config, "data").load(), *parts)
    epoch = EpochBatches(data, components.make(config, "batching"), 1, 0)
    share = padding_share(epoch.indices, data.train.source.lengths, data.train.target.lengths)
    print(f"padding {100 * share:.1f} %")
    batches = [epoch[i] for i in range(repeats)]
    sizes = data.tokenizer.source_size, data.tokenizer.target_size
    runs = [
        (*pair, Training([f"decoder={pair[0]}", f"attention={pair[1]}"], *sizes)) for pair in PAIRS
    ]
    timed: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for i in range(-1, repeats):  # the first round warms up
        for decoder, score, run in runs:
            for precision in DTYPES:
                spent = run.step(batches[max(i, 0)], precision)
                if i >= 0:
                    timed.setdefault((decoder, score, precision), []).append(spent)
    rows: list[dict[str, Any]] = []
    for decoder, score, run in runs:
        for precision in DTYPES:
            parts = timed[decoder, score, precision]
            speeds = [b.num_tokens / sum(p) for b, p in zip(batches, parts, strict=True)]
            shares = [
                run.floor(b, rates["float32"]) / sum(p) for b, p in zip(batches, parts, strict=True)
            ]
            rows.append({
                "decoder": decoder, "score": score, "precision": precision,
                "tokens_per_second": statistics.median(speeds), "share_of_float32_floor": statistics.median(shares),
                "forward_ms": 1e3 * statistics.median(p[0] for p in parts),
                "backward_ms": 1e3 * statistics.median(p[1] for p in parts),
                "optimizer_ms": 1e3 * statistics.median(p[2] for p in parts),
                "peak_mb": peak_bytes(partial(run.step, batches[0], precision)) / 2**20,
                "padding": share,
            })  # fmt: skip
            print("{decoder:10} {score:8} {precision:8} {tokens_per_second:6,.0f} target tokens/s {share:4.0%} of the "
                  "float32 floor  forward {forward_ms:.0f}, backward {backward_ms:.0f}, optimizer {optimizer_ms:.0f} ms  "
                  "{peak_mb:.0f} MB".format(share=rows[-1]["share_of_float32_floor"], **rows[-1]))  # fmt: skip
    return rows


def decoding(
    model: str, overrides: list[str], rates: dict[str, float], repeats: int
) -> list[dict[str, Any]]:
    """The test part with a trained model, the precisions in turn: batched, and one sentence at a time.

    The floor counts every step of the best translation `width` times: the beam's losing ends are not counted."""
    splits = components.make(compose("train", overrides), "data").load()
    source = (splits.test or splits.validation).source
    precisions = [name for name in ("float32", "bfloat16", "int8") if name in rates]
    rows: list[dict[str, Any]] = []
    for name, search, width in (("greedy", Greedy(), 1), ("beam 5", Beam(width=5), 5)):
        translators = {
            p: loading.translator(model, device="cpu", search=search, precision=p)
            for p in precisions
        }  # type: ignore[arg-type]
        took: dict[str, list[float]] = {p: [] for p in precisions}
        single: dict[str, list[float]] = {p: [] for p in precisions}
        for translator in translators.values():
            translator.translate(source[:50])
        for _ in range(repeats):
            for precision, translator in translators.items():
                took[precision].append(seconds(lambda t=translator: t.translate(source)))  # type: ignore[misc]
        for line in source[:100]:
            for precision, translator in translators.items():
                single[precision].append(seconds(lambda t=translator, s=line: t.translate([s])))  # type: ignore[misc]
        for precision, translator in translators.items():
            result = translator.translations(source)
            lengths = [
                (len(t.source) + 1, width * (len(t.hypotheses[0].tokens) + 1)) for t in result
            ]
            totals = [
                sum(s for s, _ in lengths),
                sum(t for _, t in lengths),
                sum(s * t for s, t in lengths),
            ]
            needed = Costs.of(translator.models[0]).forward(*totals) / rates[precision]
            seconds_taken = statistics.median(took[precision])
            rows.append({
                "search": name, "precision": precision, "sentences_per_second": len(source) / seconds_taken,
                "share_of_floor": needed / seconds_taken, "latency_ms": 1e3 * statistics.median(single[precision]),
                "latency_95_ms": 1e3 * statistics.quantiles(single[precision], n=20)[-1],
            })  # fmt: skip
            print("{search:7} {precision:8} {sentences_per_second:6.0f} sentences/s {share_of_floor:4.0%} of its floor; "
                  "one at a time: median {latency_ms:.0f} ms, 95 % {latency_95_ms:.0f} ms".format(**rows[-1]))  # fmt: skip
    return rows


def startup(model: str | None, repeats: int) -> dict[str, float]:
    """Seconds of cold processes."""
    commands = {
        "python alone": [sys.executable, "-c", "pass"],
        "import nmt": [sys.executable, "-c", "import nmt"],
        "nmt.translate --help": [sys.executable, "-m", "nmt.translate", "--help"],
    }
    if model:
        commands["first translated line"] = [
            sys.executable,
            "-m",
            "nmt.translate",
            f"model={model}",
        ]
    result = {}
    for name, command in commands.items():
        run = functools.partial(
            subprocess.run, command, input=b"A dog .\n", capture_output=True, check=True
        )
        result[name] = statistics.median(seconds(run) for _ in range(repeats))
        print(f"{name}: {result[name]:.2f} s")
    return result


def training_memory(overrides: list[str], updates: int) -> dict[str, float]:
    """Peak resident memory in MB of `nmt.train experiment=multi30k_best` with one thread."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "nmt.train", "experiment=multi30k_best", *overrides),
            *(f"trainer.max_updates={updates}", f"run_dir={folder}/run", "threads=1"),
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    peak = usage.ru_maxrss / 1024
    print(f"multi30k_best, {updates} updates: peak {peak:,.0f} MB")
    return {"updates": updates, "peak_mb": peak}


def draw(result: dict[str, Any], path: Path) -> None:
    """Bars: training speed of every configuration, decoding speed of every search, by precision."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 2, figsize=(12, 3.8), width_ratios=[5, 1.4], layout="constrained"
    )
    for place, kind, names, speed in (
        (axes[0], "training", ("decoder", "score"), "tokens_per_second"),
        (axes[1], "decoding", ("search",), "sentences_per_second"),
    ):
        rows = result.get(kind, [])
        labels = list(dict.fromkeys("\n".join(row[name] for name in names) for row in rows))
        precisions = list(dict.fromkeys(row["precision"] for row in rows))
        for i, (precision, colour) in enumerate(
            zip(precisions, ("#3b6ea5", "#c0504d", "#7f9c4f"), strict=False)
        ):
            bars = [row[speed] for row in rows if row["precision"] == precision]
            place.bar(
                [j + 0.27 * i for j in range(len(bars))], bars, 0.27, color=colour, label=precision
            )
        place.set_xticks(
            [j + 0.135 * (len(precisions) - 1) for j in range(len(labels))], labels, fontsize=8
        )
        place.set_title(
            {"training": "training, target tokens/s", "decoding": "decoding, sentences/s"}[kind],
            fontsize=10,
        )
        place.spines[["top", "right"]].set_visible(False)
        if rows:
            place.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def compare(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Ratios new/old of all speeds."""
    for kind, keys, figure in (
        ("training", ("decoder", "score", "precision"), "tokens_per_second"),
        ("decoding", ("search", "precision"), "sentences_per_second"),
    ):
        before = {tuple(row[key] for key in keys): row[figure] for row in old.get(kind, [])}
        for row in new.get(kind, []):
            name = tuple(row[key] for key in keys)
            if name in before:
                print(f"{kind:9} {' '.join(name):30} {row[figure] / before[name]:5.2f} x")
    before, after = old.get("memory"), new.get("memory")
    if before and after and before["updates"] == after["updates"]:
        ratio = after["peak_mb"] / before["peak_mb"]
        print(f"memory    {'multi30k_best':30} {ratio:5.2f} x the peak")
    for name, took in new["startup_seconds"].items():
        if name in old.get("startup_seconds", {}):
            print(f"startup   {name:30} {took / old['startup_seconds'][name]:5.2f} x the time")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="data=… as for nmt.train")
    parser.add_argument("--model", help="the run folder of a trained model, for decoding")
    parser.add_argument("--out", type=Path, default=Path("benchmark.json"))
    parser.add_argument("--compare", type=Path, help="an older result: print ratios")
    parser.add_argument(
        "--memory", type=int, default=0, metavar="UPDATES",
        help="peak memory of this number of updates of multi30k_best, about 1 s each; 0 for none",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    keep_freed_memory()
    rates = product_rates(options.repeats)
    print(
        "products, 10⁹ multiply-adds/s: "
        + ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in rates.items())
    )
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(), "torch": torch.__version__, "multiply_adds_per_second": rates,
    }  # fmt: skip
    result["startup_seconds"] = startup(options.model, options.repeats)
    if options.model:
        result["decoding"] = decoding(options.model, options.overrides, rates, options.repeats)
    if options.memory:
        result["memory"] = training_memory(options.overrides, options.memory)
    result["training"] = training(options.overrides, rates, options.repeats)
    result["peak_process_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    draw(result, options.out.with_suffix(".png"))
    if options.compare:
        compare(json.loads(options.compare.read_text()), result)


if __name__ == "__main__":
    main()
