"""Plots test scores against the number of training pairs, and fits a line.

    python scripts/scaling.py [--out scaling.png] [--check 5500=31.0]

The scores are those of the recipes in the register. The line is BLEU = a + b log2(pairs), fitted to
the mean scores by least squares; b is the gain from twice as many pairs. --check: prints the
difference of another score from the line.
"""

import argparse
import json
from pathlib import Path

import numpy as np

REGISTER = Path(__file__).with_name("results") / "quality.json"
ENTRIES = {
    1_000: "little_1k_en_larger_three_seeds",
    3_000: "little_3k_en_larger_three_seeds",
    10_000: "little_10k_en_three_seeds",
    29_000: "multi30k_best",
}
"""Entry of the register for each number of training pairs."""


def scores() -> dict[int, list[float]]:
    """Returns the BLEU of each seed for each number of pairs."""
    entries = {entry["id"]: entry for entry in json.loads(REGISTER.read_text(encoding="utf-8"))}
    bleu = {pairs: entries[name]["metrics"]["bleu"] for pairs, name in ENTRIES.items()}
    return {pairs: metric.get("values", [metric["value"]]) for pairs, metric in bleu.items()}


def fitted(pairs: list[int], bleu: list[float]) -> tuple[np.ndarray, float]:
    """Returns slope and intercept of the line, and the standard error of the slope."""
    x = np.log2(pairs)
    line = np.polyfit(x, bleu, 1)
    residuals = np.asarray(bleu) - np.polyval(line, x)
    variance = (residuals**2).sum() / max(1, len(x) - 2)
    return line, float(np.sqrt(variance / ((x - x.mean()) ** 2).sum()))


def draw(points: dict[int, list[float]], line: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    ends = np.array([min(points) / 1.3, max(points) * 2])
    axes.plot(ends, np.polyval(line, np.log2(ends)), color="0.6", linewidth=1, zorder=1)
    for pairs, values in points.items():
        axes.scatter([pairs] * len(values), values, color="C0", s=25, zorder=2)
    axes.set_xscale("log")
    axes.set_xticks(list(points), [f"{pairs:,}" for pairs in points])
    axes.minorticks_off()
    axes.set_xlabel("training pairs (logarithmic)")
    axes.set_ylabel("test BLEU, one point per seed")
    axes.annotate(
        f"twice as many pairs: {line[0]:+.1f} BLEU",
        (np.sqrt(ends.prod()), np.polyval(line, np.log2(np.sqrt(ends.prod())))),
        xytext=(8, -18),
        textcoords="offset points",
        color="0.35",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Multi30k English → German, test2016, recipes of nmt", fontsize=10)
    figure.savefig(path, dpi=130)


def score(text: str) -> tuple[int, float]:
    """Parses PAIRS=BLEU. Raises ValueError, which argparse reports, for other text."""
    count, score = text.split("=")
    return int(count), float(score)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("scaling.png"))
    parser.add_argument("--check", nargs="*", default=[], type=score, metavar="PAIRS=BLEU")
    options = parser.parse_args()
    points = scores()
    pairs = list(points)
    means = [float(np.mean(values)) for values in points.values()]
    line, error = fitted(pairs, means)
    print(f"twice as many pairs: {line[0]:+.2f} BLEU, standard error {error:.2f}")
    part, _ = fitted(pairs[:-1], means[:-1])
    predicted = np.polyval(part, np.log2(pairs[-1]))
    print(f"{pairs[-1]:,} pairs from the others: {predicted:.1f}, measured {means[-1]:.1f}")
    for count, measured in options.check:
        predicted = np.polyval(line, np.log2(count))
        print(f"{count:,} pairs: {predicted:.1f} by the line, measured {measured:.1f}")
    draw(points, line, options.out)


if __name__ == "__main__":
    main()
