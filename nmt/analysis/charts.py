"""The pictures of a report, as matplotlib figures: learning curves, cost against quality, quality by source length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nmt.analysis.run_results import Configuration
from nmt.analysis.significance import mean_and_deviation
from nmt.analysis.word_statistics import length_buckets
from nmt.metric import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 8
"""Configurations that have a colour of their own; the others are grey."""
FEWEST = 10
"""Sentences in a point of the curve over lengths."""


def _axes(count: int, height: float = 3.6) -> tuple[Figure, Sequence[Any]]:
    from nmt.drawing.plots import Figure

    figure = Figure(figsize=(4.9 * count, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.2)
    return figure, axes


def _colours(configurations: Sequence[Configuration]) -> list[Any]:
    """Of the best few, and of the worst; grey between. Distinct for people who see few colours (Okabe and Ito's)."""
    palette = [
        "#0072b2",
        "#d55e00",
        "#009e73",
        "#cc79a7",
        "#e69f00",
        "#56b4e9",
        "#8f7a00",
        "#6b6b6b",
    ]
    shown = list(range(len(configurations)))
    if len(shown) > SHOWN:
        shown = [*shown[: SHOWN - 1], shown[-1]]
    return [
        palette[shown.index(i)] if i in shown else "#b8b8b8" for i in range(len(configurations))
    ]


def learning_curves(configurations: Sequence[Configuration], metric: str) -> Figure:
    """Validation loss and the metric against epochs: the mean over seeds, and a band from the lowest to the highest."""
    figure, axes = _axes(2)
    for each, colour in zip(configurations, _colours(configurations), strict=True):
        for ax, name in zip(axes, ("loss", metric), strict=True):
            points = _over_epochs(each, name)
            if not points:
                continue
            x = sorted(points)
            ax.plot(
                x,
                [sum(points[e]) / len(points[e]) for e in x],
                color=colour,
                lw=1.6,
                label=each.label,
            )
            if any(len(points[e]) > 1 for e in x):
                lows, highs = [min(points[e]) for e in x], [max(points[e]) for e in x]
                ax.fill_between(x, lows, highs, color=colour, alpha=0.15, lw=0)
    for ax, name in zip(axes, ("loss (nats a token)", metric), strict=True):
        ax.set(xlabel="epoch", ylabel=f"validation {name}")
    _legend(figure, axes[1])
    return figure


def _over_epochs(configuration: Configuration, name: str) -> Mapping[float, list[float]]:
    """The values of a figure by epochs; as far as all seeds were trained, so that a mean is one of all of them."""
    curves = []
    for run in configuration.runs:
        points = [
            (round(r["epoch"], 3), r[name])
            for r in run.curve
            if r.get("kind") == "validation" and name in r
        ]
        curves.append(dict(points))
    last = min((max(curve) for curve in curves if curve), default=0)
    found: dict[float, list[float]] = {}
    for curve in curves:
        for epoch, value in curve.items():
            if epoch <= last:
                found.setdefault(epoch, []).append(value)
    return found


def cost_against_quality(configurations: Sequence[Configuration], metric: str) -> Figure:
    """Minutes of training and parameters against the score of the test part; a mark for each seed."""
    figure, axes = _axes(2)
    for each, colour in zip(configurations, _colours(configurations), strict=True):
        runs = [run for run in each.runs if metric in run.scores]
        scores = [run.scores[metric] for run in runs]
        axes[0].plot(
            [run.seconds / 60 for run in runs],
            scores,
            "o",
            ms=5,
            alpha=0.85,
            color=colour,
            label=each.label,
        )
        sizes = [(run.parameters or 0) / 1e6 for run in runs]
        axes[1].plot(sizes, scores, "o", ms=5, alpha=0.85, color=colour)
    axes[0].set(xlabel="minutes of training", ylabel=f"test {metric}")
    axes[1].set(xlabel="million parameters", ylabel=f"test {metric}")
    _legend(figure, axes[0])
    return figure


def by_length(
    configurations: Sequence[Configuration], judge: Metric, name: str = "bleu"
) -> Figure | None:
    """The score of test sentences by the length of their source (Bahdanau et al. 2015, figure 2; Luong et al. 2015, figure
    6). None if the runs kept no translations."""
    drawn = []
    for each in configurations:
        points: dict[float, list[float]] = {}
        for run in each.runs:
            source, answers, references = (
                run.lines(f"test{part}.txt") for part in (".source", "", ".reference")
            )
            if (
                source is None
                or answers is None
                or references is None
                or not len(source) == len(answers) == len(references)
            ):
                continue
            for bucket in length_buckets(source, FEWEST):
                said, wanted = ([side[i] for i in bucket.places] for side in (answers, references))
                points.setdefault(bucket.middle, []).append(judge.score(said, wanted)[name].score)
        if points:
            drawn.append((each, points))
    if not drawn:
        return None
    figure, [ax] = _axes(1)
    figure.set_size_inches(7.5, 3.8)
    colours = _colours(configurations)
    for each, points in drawn:
        x = sorted(points)
        means = [mean_and_deviation(points[middle])[0] for middle in x]
        ax.plot(
            x,
            means,
            "o-",
            ms=3.5,
            lw=1.5,
            color=colours[configurations.index(each)],
            label=each.label,
        )
    ax.set(xlabel="words of the source sentence", ylabel=f"test {name}")
    ax.set_ylim(bottom=0)
    _legend(figure, ax)
    return figure


def _legend(figure: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    rows = math.ceil(len(labels) / max(1, round(figure.get_figwidth() / 2.6)))
    figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    from nmt.drawing.plots import literal

    columns = max(1, round(figure.get_figwidth() / 2.6))
    figure.legend(
        handles,
        list(map(literal, labels)),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def bars(configurations: Sequence[Configuration], metric: str) -> Figure:
    """The test score of every seed, a row for each configuration, the best at the top: what a README shows."""
    from nmt.drawing.plots import literal

    figure, [ax] = _axes(1)
    figure.set_size_inches(7.5, 0.9 + 0.3 * len(configurations))
    for row, (each, colour) in enumerate(
        zip(configurations, _colours(configurations), strict=True)
    ):
        scores = each.of(metric)
        if scores:
            ax.plot(scores, [row] * len(scores), "o", ms=5, alpha=0.8, color=colour)
            ax.plot([sum(scores) / len(scores)], [row], "|", ms=15, mew=2, color=colour)
    ax.set_yticks(
        range(len(configurations)), [literal(each.label) for each in configurations], fontsize=8
    )
    ax.set_ylim(len(configurations) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"test {metric}: a dot for each seed, a line for the mean")
    return figure
