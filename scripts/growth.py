"""Plot of the time and memory of training and translation against batch, hidden size, length and vocabulary.

    python scripts/growth.py [--out growth.png] [--repeats 3] [--varied length,vocabulary]

Random sentences, one of the sizes varied at a time around 40 sentences of 16 source and 16 target tokens, 192 units per
direction and a vocabulary of 8,000, with the network sizes of `experiment=multi30k_fast`. Training is one update in
bfloat16: forward, backward and optimizer. Translation is beam search (width 5) in the fastest precision of the
processor, in which every hypothesis is as long as the source. Each point is measured in its own process with one
thread. Times are medians of the processor time, which hardly depends on other processes. Memory is the peak resident
memory of the process, with Python and PyTorch (about 300 MB).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from benchmark import Training

from nmt.foundation.interfaces import BOS, EOS, Batch, Request
from nmt.foundation.processes import keep_freed_memory
from nmt.inference.networks import Networks
from nmt.model.precision import fastest_precision
from nmt.search.beam import Beam
from nmt.tokenizer.columns import Columns
from nmt.training.memory import keep_few_products, peak_memory

CONFIGURATIONS = (("bahdanau", "concat"), ("luong", "general"))
USUAL = {"sentences": 40, "hidden": 192, "length": 16, "vocabulary": 8000}
VARIED: dict[str, Sequence[int]] = {
    "sentences": (10, 20, 40, 80, 160),
    "hidden": (64, 128, 256, 512),
    "length": (50, 100, 200, 400),
    "vocabulary": (8000, 16000, 32000, 64000),
}
WORK = ("training", "translation")


def random_batch(sentences: int, source: int, target: int, vocabulary: int) -> Batch:
    """Sentences of equal length, without padding."""
    draw = lambda length: torch.randint(EOS + 1, vocabulary, (sentences, length))  # noqa: E731
    targets = draw(target)
    return Batch(
        source=draw(source), source_lengths=torch.full((sentences,), source), targets=targets,
        inputs=torch.cat([torch.full((sentences, 1), BOS), targets[:, :-1]], 1), num_tokens=targets.numel(),
    )  # fmt: skip


def measure(point: dict[str, Any], repeats: int) -> dict[str, float]:
    """Median seconds of one update or of the translation of one batch, and peak memory of this process in MB."""
    torch.set_num_threads(1)
    keep_few_products()
    keep_freed_memory()
    sizes = [
        f"encoder.hidden_size={point['hidden']}",
        f"decoder.hidden_size={2 * point['hidden']}",
        "decoder.readout_size=256",
        "model.tying=all",
    ]
    choices = [f"decoder={point['decoder']}", f"attention={point['score']}"]
    run = Training([*choices, *sizes], point["vocabulary"], point["vocabulary"])
    batch = random_batch(point["sentences"], point["length"], point["length"], point["vocabulary"])
    if point["work"] == "training":
        work = lambda: run.step(batch, "bfloat16")  # noqa: E731
    else:
        run.optimizer.zero_grad(set_to_none=True)
        work = translation(run, batch)
    work()
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return {"seconds": statistics.median(spent), "peak_mb": peak_memory()}


def translation(run: Training, batch: Batch) -> Any:
    """Function that translates the sources of a batch by beam search, with hypotheses of their length."""
    with torch.no_grad():
        run.model.output.bias[EOS] = -1e4  # hypotheses end only at the limit
    networks = Networks([run.model.eval()], Columns(), fastest_precision(torch.device("cpu")))
    sources = batch.source.tolist()
    requests = [Request(max_length=len(source)) for source in sources]

    def translate() -> None:
        memories = networks.memories(sources)
        with networks.generating(), torch.inference_mode():
            Beam(width=5)(*networks.first_step(memories), requests)

    return translate


def measure_alone(point: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Point with the figures of `measure`, which runs in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        return {**point, **process.submit(measure, point, repeats).result()}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = {
        "sentences": "sentences per batch",
        "hidden": "units per direction",
        "length": "tokens per sentence",
        "vocabulary": "vocabulary",
    }
    colours = dict(zip(CONFIGURATIONS, ("#3b6ea5", "#c0504d"), strict=True))
    names = list(dict.fromkeys(row["varied"] for row in rows))
    figure, axes = plt.subplots(
        len(names), 4, figsize=(13, 2.6 * len(names)), layout="constrained", squeeze=False
    )
    for i, name in enumerate(names):
        for j, (work, quantity) in enumerate((w, q) for w in WORK for q in ("seconds", "peak_mb")):
            place = axes[i][j]
            for network, colour in colours.items():
                chosen = [
                    row
                    for row in rows
                    if (row["varied"], row["work"]) == (name, work)
                    and (row["decoder"], row["score"]) == network
                ]
                values = [row[name] for row in chosen]
                heights = [row[quantity] for row in chosen]
                place.plot(values, heights, "o-", color=colour, label=", ".join(network))
            # Linear on linear: proportional growth is a straight line.
            place.set_xticks(values[-2:], [f"{value:,}" for value in values[-2:]])
            place.set_xlim(left=0)
            place.set_ylim(bottom=0)
            place.set_xlabel(titles[name])
            place.spines[["top", "right"]].set_visible(False)
            if i == 0:
                unit = "seconds" if quantity == "seconds" else "peak memory, MB"
                place.set_title(f"{work}: {unit}", fontsize=10)
    axes[0][0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("growth.png"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--varied", default=",".join(VARIED), help="sizes to vary")
    options = parser.parse_args()
    if unknown := {*options.varied.split(",")} - {*VARIED}:
        parser.error(f"--varied: unknown size {min(unknown)}; choose from {', '.join(VARIED)}")
    rows = []
    for name in options.varied.split(","):
        for value in VARIED[name]:
            for work in WORK:
                for decoder, score in CONFIGURATIONS:
                    network = {"decoder": decoder, "score": score, "work": work}
                    point = {**USUAL, name: value, **network, "varied": name}
                    rows.append(measure_alone(point, options.repeats))
                    print(f"{work:11} {decoder:8} {score:7} {name} {value:,}: "
                          "{seconds:.2f} s, {peak_mb:,.0f} MB".format(**rows[-1]), flush=True)  # fmt: skip
    options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, options.out)


if __name__ == "__main__":
    main()
