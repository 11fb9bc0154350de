"""How fast nmt is on this machine, and how far from what the machine's matrix products allow.

    python scripts/benchmark.py data=text data.train=DIR/train data.validation=DIR/val data.test=DIR/test \
        data.source=en data.target=de [--model RUN_DIR] [--out benchmark.json] [--compare OLD.json]

Trains every decoder x {concat, general, dot} for a few batches at the reference setting (GRU 256 per direction,
decoder 512, embeddings 256, attention 512, readout 512, vocabulary 8k, nothing tied, 80 sentences a batch), the
configurations in turn, in float32 and bfloat16; decodes the test part with a trained model if one is given; times
start-up. Medians; the machine's product rates are measured in the same run. The floor counts each product once forward
and twice backward.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from nmt import build
from nmt.allocator import keep_freed_memory
from nmt.batching import padding_share
from nmt.config import CONF
from nmt.interfaces import Batch
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy

REFERENCE = (
    "model.embedding_size=256", "encoder.hidden_size=256", "decoder.hidden_size=512", "decoder.readout_size=512",
    "model.tying=none", "model.dropout=0.3", "model.readout_dropout=0.3", "tokenizer=unigram",
    "tokenizer.vocabulary_size=8000", "tokenizer.split_digits=false", "batching.sentences=80", "optimizer.lr=0.001",
)  # fmt: skip
PAIRS = [(d, a) for d in ("bahdanau", "luong_feed", "luong") for a in ("concat", "general", "dot")] + [
    ("fixed", "none")
]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def composed(overrides: list[str]) -> dict[str, Any]:
    with initialize_config_dir(CONF, version_base="1.3"):
        config = compose("train", overrides=overrides)
    OmegaConf.set_struct(config, False)
    config.pop("hydra", None)
    config.run_dir = "unused"
    return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]


def seconds(action: Callable[[], Any], least: float = 0.15) -> float:
    """Seconds per call, over at least `least` seconds."""
    action()
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < least:
        action()
        calls += 1
    return (time.perf_counter() - began) / calls


def product_rates(repeats: int) -> dict[str, float]:
    """Multiply-adds per second of the products a training step is made of, weighted as they occur in it."""
    shapes = {(1280, 512, 8000): 5.2e9, (1280, 512, 1536): 1e9, (80, 512, 2048): 1.3e9, (1280, 1280, 1024): 1.7e9}
    rates = {}
    for name, dtype in DTYPES.items():
        spent = 0.0
        for (m, k, n), weight in shapes.items():
            a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
            best = statistics.median(seconds(lambda a=a, b=b: a @ b) for _ in range(repeats))  # type: ignore[misc]
            spent += weight * best / (m * k * n)
        rates[name] = sum(shapes.values()) / spent
    quantised = torch.randint(-9, 9, (1280, 512), dtype=torch.int8), torch.randint(-9, 9, (512, 8000), dtype=torch.int8)
    try:
        took = statistics.median(seconds(lambda: torch._int_mm(*quantised)) for _ in range(repeats))
        rates["int8"] = 1280 * 512 * 8000 / took
    except RuntimeError:  # not in this build of torch
        pass
    return rates


def multiply_adds(decoder: str, score: str, source: int, target: int, pairs: int, vocabulary: int) -> float:
    """Multiply-adds of one forward pass: `source` and `target` tokens, `pairs` = Σ source length x target length."""
    e, h, m, q, a, d = 256, 256, 512, 512, 512, 512
    per_source, per_target, per_pair = 2 * 3 * h * (e + h), d * vocabulary, 0
    per_target += {
        "bahdanau": 3 * q * (e + m + q) + 2 * d * (q + e + m),
        "fixed": 3 * q * (e + m + q) + 2 * d * (q + e + m),
        "luong": 3 * q * (e + q) + d * (q + m),
        "luong_feed": 3 * q * (e + q + d) + d * (q + m),
    }[decoder]
    if score != "none":
        per_pair += m + {"concat": a, "general": q, "dot": q}[score]
        per_source += {"concat": m * a, "general": m * q, "dot": 0}[score]
        per_target += q * a if score == "concat" else 0
    return source * per_source + target * per_target + pairs * per_pair


class Training:
    """One configuration, ready to take training steps."""

    def __init__(self, overrides: list[str], decoder: str, score: str, data: build.Prepared) -> None:
        config = composed([*overrides, *REFERENCE, f"decoder={decoder}", f"attention={score}"])
        torch.manual_seed(1)
        self.decoder, self.score = decoder, score
        self.model = build.network(config, data.tokenizer.source_size, data.tokenizer.target_size)
        self.objective = build.make(config, "objective")
        self.optimizer = build.make(config, "optimizer", parameters=list(self.model.parameters()))

    def step(self, batch: Batch, precision: str) -> tuple[float, float, float]:
        """Seconds of forward, backward and optimizer."""
        times = [time.perf_counter()]
        with torch.autocast("cpu", DTYPES[precision], enabled=precision != "float32"):
            loss = self.objective(self.model, batch, 0)
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
        lengths = (batch.targets != 0).sum(1)
        pairs = int((lengths * batch.source_lengths).sum())
        vocabulary = self.model.output.weight.size(0)
        forward = multiply_adds(
            self.decoder, self.score, int(batch.source_lengths.sum()), batch.num_tokens, pairs, vocabulary
        )
        return 3 * forward / rate


def training(overrides: list[str], rates: dict[str, float], repeats: int) -> list[dict[str, Any]]:
    """Every configuration on the same batches, in turn, `repeats` times."""
    config = composed([*overrides, *REFERENCE])
    data = build.prepare(config)
    epoch = build.EpochBatches(data, build.make(config, "batching"), 1, 0)
    share = padding_share(epoch.indices, data.train.source.lengths, data.train.target.lengths)
    print(f"padding {100 * share:.1f} %")
    batches = [epoch[i] for i in range(repeats)]
    tokens = sum(batch.num_tokens for batch in batches)
    runs = [Training(overrides, *pair, data) for pair in PAIRS]
    timed: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for i in range(-1, repeats):  # the first round warms up
        for run in runs:
            for precision in DTYPES:
                spent = run.step(batches[max(i, 0)], precision)
                if i >= 0:
                    timed.setdefault((run.decoder, run.score, precision), []).append(spent)
    rows = []
    for run in runs:
        for precision in DTYPES:
            parts = timed[run.decoder, run.score, precision]
            speeds = [b.num_tokens / sum(p) for b, p in zip(batches, parts, strict=True)]
            floor = sum(run.floor(b, rates["float32"]) for b in batches)
            total = sum(map(sum, parts))
            rows.append({
                "decoder": run.decoder, "score": run.score, "precision": precision,
                "tokens_per_second": statistics.median(speeds), "share_of_float32_floor": floor / total,
                "forward_ms": 1e3 * statistics.median(p[0] for p in parts),
                "backward_ms": 1e3 * statistics.median(p[1] for p in parts),
                "optimizer_ms": 1e3 * statistics.median(p[2] for p in parts),
                "tokens": tokens, "padding": share,
            })  # fmt: skip
            print("{decoder:10} {score:8} {precision:8} {tokens_per_second:7,.0f} target tokens/s  {share:4.0%} of the "
                  "float32 floor  (forward {forward_ms:.0f}, backward {backward_ms:.0f}, optimizer {optimizer_ms:.0f} ms)"
                  .format(share=rows[-1]["share_of_float32_floor"], **rows[-1]))  # fmt: skip
    return rows


def decoding(model: str, overrides: list[str], repeats: int) -> list[dict[str, Any]]:
    """The test part with a trained model: batched, and one sentence at a time."""
    splits = build.make(composed(overrides), "data").load()
    part = splits.test or splits.validation
    rows = []
    for precision in DTYPES:
        for name, search in (("greedy", Greedy()), ("beam 5", Beam(width=5))):
            translator = build.translator(model, device="cpu", search=search, precision=precision)  # type: ignore[arg-type]
            took = [seconds_once(lambda t=translator: t.translate(part.source)) for _ in range(repeats)]  # type: ignore[misc]
            single = [seconds_once(lambda t=translator, s=s: t.translate([s])) for s in part.source[:100]]  # type: ignore[misc]
            row = {
                "search": name, "precision": precision, "sentences_per_second": len(part) / statistics.median(took),
                "latency_ms": 1e3 * statistics.median(single),
                "latency_95_ms": 1e3 * statistics.quantiles(single, n=20)[-1],
            }  # fmt: skip
            rows.append(row)
            print("{search:7} {precision:8} {sentences_per_second:6.0f} sentences/s; one at a time: median "
                  "{latency_ms:.0f} ms, 95 % {latency_95_ms:.0f} ms".format(**row))  # fmt: skip
    return rows


def seconds_once(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def startup(model: str | None, repeats: int) -> dict[str, float]:
    """Seconds of cold processes."""
    commands = {
        "import nmt": [sys.executable, "-c", "import nmt"],
        "nmt.translate --help": [sys.executable, "-m", "nmt.translate", "--help"],
    }
    if model:
        commands["first translated line"] = [sys.executable, "-m", "nmt.translate", f"model={model}"]
    found = {}
    for name, command in commands.items():
        run = lambda command=command: subprocess.run(command, input=b"A dog .\n", capture_output=True, check=True)  # noqa: E731
        found[name] = statistics.median(seconds_once(run) for _ in range(repeats))
        print(f"{name}: {found[name]:.2f} s")
    return found


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
    for offset, (precision, colour) in enumerate((("float32", "#3b6ea5"), ("bfloat16", "#c0504d"))):
        chosen = [row for row in rows if row["precision"] == precision]
        places = [i + 0.4 * offset for i in range(len(chosen))]
        axes.bar(places, [row["tokens_per_second"] for row in chosen], 0.4, color=colour, label=precision)
    axes.set_xticks(
        [i + 0.2 for i in range(len(chosen))], [f"{r['decoder']}\n{r['score']}" for r in chosen], fontsize=8
    )
    axes.set_ylabel("target tokens per second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="data=… as for nmt.train")
    parser.add_argument("--model", help="a trained run directory, for decoding")
    parser.add_argument("--out", type=Path, default=Path("benchmark.json"))
    parser.add_argument("--compare", type=Path, help="an older result: print ratios")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    keep_freed_memory()
    rates = product_rates(options.repeats)
    print("products, 10⁹ multiply-adds/s: " + ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in rates.items()))
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(), "torch": torch.__version__, "multiply_adds_per_second": rates,
    }  # fmt: skip
    result["training"] = training(options.overrides, rates, options.repeats)
    result["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if options.model:
        result["decoding"] = decoding(options.model, options.overrides, max(3, options.repeats // 2))
    result["startup_seconds"] = startup(options.model, options.repeats)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    draw(result["training"], options.out.with_suffix(".png"))
    if options.compare:
        compare(json.loads(options.compare.read_text()), result)


if __name__ == "__main__":
    main()
