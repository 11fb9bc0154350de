"""Plot of training cost against batch, hidden size, source length and vocabulary.

    python scripts/growth.py [--out growth.png] [--repeats 5]

Random sentences, one of the sizes varied at a time around 80 sentences, 256 units per direction, 16 source and 16 target
tokens and a vocabulary of 8,000. Speed in float32, medians; memory is the most that the tensors of one step held, in
both cases for all of forward, backward and optimizer.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmark import Training, peak_bytes

from nmt.foundation.interfaces import BOS, EOS, Batch
from nmt.training.memory import keep_freed_memory

CONFIGURATIONS = (("bahdanau", "concat"), ("luong", "general"))
USUAL = {"sentences": 80, "hidden": 256, "source": 16, "vocabulary": 8000}
VARIED: dict[str, Sequence[int]] = {
    "sentences": (5, 10, 20, 40, 80, 160),
    "hidden": (64, 128, 256, 512),
    "source": (10, 25, 50, 100, 200),
    "vocabulary": (1000, 4000, 16000, 64000),
}


def random_batch(sentences: int, source: int, target: int, vocabulary: int) -> Batch:
    """Sentences of equal length, without padding."""
    draw = lambda length: torch.randint(EOS + 1, vocabulary, (sentences, length))  # noqa: E731
    targets = draw(target)
    return Batch(
        source=draw(source), source_lengths=torch.full((sentences,), source), targets=targets,
        inputs=torch.cat([torch.full((sentences, 1), BOS), targets[:, :-1]], 1), num_tokens=targets.numel(),
    )  # fmt: skip


def measure(
    decoder: str,
    score: str,
    repeats: int,
    *,
    sentences: int,
    hidden: int,
    source: int,
    vocabulary: int,
    target: int = 16,
) -> dict[str, float]:
    """Target tokens per second, and bytes held at most by the tensors of one step."""
    sizes = [
        f"encoder.hidden_size={hidden}",
        f"decoder.hidden_size={2 * hidden}",
        f"decoder.readout_size={2 * hidden}",
    ]
    run = Training([f"decoder={decoder}", f"attention={score}", *sizes], vocabulary, vocabulary)
    batch = random_batch(sentences, source, target, vocabulary)
    run.step(batch, "float32")
    took = statistics.median(sum(run.step(batch, "float32")) for _ in range(repeats))
    return {
        "tokens_per_second": batch.num_tokens / took,
        "bytes": peak_bytes(lambda: run.step(batch, "float32")),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(VARIED), figsize=(13, 6), layout="constrained")
    for column, (name, values) in enumerate(VARIED.items()):
        title = {
            "sentences": "sentences a batch",
            "hidden": "units per direction",
            "source": "source tokens",
        }
        for row, figure_of, unit in ((0, "tokens_per_second", 1.0), (1, "bytes", 2.0**-20)):
            place = axes[row][column]
            for (decoder, score), colour in zip(
                CONFIGURATIONS, ("#3b6ea5", "#c0504d"), strict=True
            ):
                chosen = [
                    r
                    for r in rows
                    if r["varied"] == name and (r["decoder"], r["score"]) == (decoder, score)
                ]
                heights = [r[figure_of] * unit for r in chosen]
                place.plot(values, heights, "o-", color=colour, label=f"{decoder}, {score}")
            if row == 0:
                place.set_xscale("log")
                place.set_xticks(values, [f"{v:,}" for v in values])
                place.minorticks_off()
            else:  # linear on linear: proportional growth is a straight line
                place.set_xticks(values[-2:], [f"{v:,}" for v in values[-2:]])
                place.set_xlabel(title.get(name, name))
            place.set_ylim(bottom=0)
            place.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("target tokens per second")
    axes[1][0].set_ylabel("MB held by one step")
    axes[0][0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("growth.png"))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    keep_freed_memory()
    rows = []
    for name, values in VARIED.items():
        for value in values:
            for decoder, score in CONFIGURATIONS:
                result = measure(decoder, score, options.repeats, **{**USUAL, name: value})
                rows.append(
                    {"varied": name, "value": value, "decoder": decoder, "score": score, **result}
                )
                print(f"{decoder:9} {score:8} {name} {value:,}: {result['tokens_per_second']:,.0f} target tokens/s, "
                      f"{result['bytes'] / 2**20:,.0f} MB", flush=True)  # fmt: skip
    options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, options.out)


if __name__ == "__main__":
    main()
