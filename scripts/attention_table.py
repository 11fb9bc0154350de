"""The table of a sweep over decoders, scores, windows and normalisers, from its run directories.

    python -m nmt.train -m experiment=attention_table
    python scripts/attention_table.py runs/attention_table SOURCE REFERENCE [--out attention.png]

Seeds make a cell together: BLEU and chrF of the test part, mean (± sample standard deviation); target tokens per second in
training, the best of the seeds' medians; and the entropy of the attention to the words of SOURCE while REFERENCE is written,
in nats a target token (0: always one position; uniform attention has the logarithm of the length).
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nmt import Translator
from nmt.configuration.loading import translator
from nmt.data.text import read_lines
from nmt.storage.checkpoint import BEST, read
from nmt.training.memory import keep_freed_memory

Row = tuple[str, str, str, str]
"""Decoder, score, window, normaliser."""
PLAIN = ("global", "softmax")


@dataclass
class Figures:
    """Those of the runs that differ only by their seed."""

    bleu: list[float] = field(default_factory=list)
    chrf: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)


def mechanism(config: dict) -> Row:
    """The choices of a run, by the last part of what they name."""
    groups = ("decoder", "attention", "window", "normalizer")
    names = [config[group]["_target_"].split(".")[-2] if config[group] else "none" for group in groups]
    return tuple("global" if name == "window" else name for name in names)  # type: ignore[return-value]


def entropy(model: Translator, source: list[str], reference: list[str]) -> float | None:
    """The mean of −Σ_s α_s ln α_s over target tokens; None without attention."""
    if not model.attends:
        return None
    targets = model.tokenizer.encode_target(reference)
    found = []
    for forced in model.force(model.encode(source), targets):
        assert forced.weights is not None
        weights = forced.weights.astype(np.float64)
        found.append(-(weights * np.log(np.maximum(weights, 1e-30))).sum(1))
    return float(np.concatenate(found).mean())


def collect(folder: Path, source: list[str], reference: list[str]) -> dict[Row, Figures]:
    """All finished runs below a folder."""
    table: dict[Row, Figures] = {}
    for results in sorted(folder.glob("*/results.json")):
        run, found = results.parent, json.loads(results.read_text())
        figures = table.setdefault(mechanism(read(run / BEST).meta["config"]), Figures())
        figures.bleu.append(found["scores"]["bleu"]["score"])
        figures.chrf.append(found["scores"]["chrf"]["score"])
        records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        figures.speed.append(statistics.median(r["speed"] for r in records if r["kind"] == "train"))
        spread = entropy(translator(str(run)), source, reference)
        if spread is not None:
            figures.entropy.append(spread)
    return table


def cell(figures: Figures | None) -> str:
    """BLEU ± deviation · chrF · target tokens/s · entropy."""
    if figures is None:
        return "–"
    deviation = f" ± {statistics.stdev(figures.bleu):.1f}" if len(figures.bleu) > 1 else ""
    entropies = f"{statistics.mean(figures.entropy):.2f}" if figures.entropy else "–"
    means = f"{statistics.mean(figures.bleu):.1f}{deviation} · {statistics.mean(figures.chrf):.1f}"
    return f"{means} · {max(figures.speed):,.0f} · {entropies}"


def show(table: dict[Row, Figures]) -> None:
    """Scores by decoders, then what else there is."""
    plain = {row: figures for row, figures in table.items() if row[2:] == PLAIN}
    decoders = sorted({row[0] for row in plain if row[1] != "none"})
    print(f"| score | {' | '.join(decoders)} |\n|---|{'---|' * len(decoders)}")
    for score in sorted({row[1] for row in plain} - {"none"}):
        cells = (cell(plain.get((decoder, score, *PLAIN))) for decoder in decoders)
        print(f"| {score} | {' | '.join(cells)} |")
    print("\n| | |\n|---|---|")
    for row, figures in sorted(table.items()):
        if row[2:] != PLAIN or row[1] == "none":
            print(f"| {', '.join(name for name in row if name not in ('none', *PLAIN))} | {cell(figures)} |")


def draw(table: dict[Row, Figures], path: Path) -> None:
    """BLEU of every seed, by decoder and score."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plain = {row: f for row, f in table.items() if row[2:] == PLAIN and row[1] != "none"}
    decoders = sorted({row[0] for row in plain})
    scores = sorted(
        {row[1] for row in plain}, key=lambda s: statistics.mean(b for r in plain if r[1] == s for b in plain[r].bleu)
    )
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for i, decoder in enumerate(decoders):
        found = [plain.get((decoder, score, *PLAIN), Figures()).bleu for score in scores]
        points = [(bleu, y + 0.22 * (i - 1)) for y, seeds in enumerate(found) for bleu in seeds]
        axes.plot([x for x, _ in points], [y for _, y in points], "os^d"[i], ms=4, alpha=0.8, label=decoder)
    axes.set_yticks(range(len(scores)), scores)
    axes.set_xlabel("BLEU, a mark for each seed")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=140)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--out", type=Path, default=Path("attention_table.png"))
    options = parser.parse_args()
    keep_freed_memory()
    table = collect(options.sweep, read_lines(options.source), read_lines(options.reference))
    show(table)
    options.out.with_suffix(".json").write_text(
        json.dumps([{"mechanism": row, **vars(figures)} for row, figures in table.items()], indent=1) + "\n"
    )
    draw(table, options.out)


if __name__ == "__main__":
    main()
