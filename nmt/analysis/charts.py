"""Figures of a report: learning curves, cost versus quality, quality by source length."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.analysis.ranking import Ranking, metric_of
from nmt.analysis.run_results import Configuration, RunResult
from nmt.analysis.word_statistics import length_groups
from nmt.drawing.plots import CHART_COLOURS, Figure, MaxNLocator, literal, row_of_axes
from nmt.metric import TITLES, Metric

PALETTE = CHART_COLOURS[:-1]
"""Colours for the best configurations and, as the last colour, for the worst configuration."""
GREY = CHART_COLOURS[-1]
"""Colour of configurations that are neither among the best nor the worst one."""
FEWEST = 10
"""Minimum number of sentences per point in the curve of BLEU by source length."""
LEGEND_WIDTH = 2.6
"""Width of a legend entry, in inches."""


def _coloured(configurations: Sequence[Configuration]) -> list[tuple[Configuration, str]]:
    """Returns pairs of a configuration and its colour in figures, best configuration first."""
    # The worst configuration gets a colour, because it is often the baseline.
    greys = [GREY] * (len(configurations) - len(PALETTE))
    return list(zip(configurations, [*PALETTE[:-1], *greys, PALETTE[-1]], strict=False))


def learning_curves(ranking: Ranking) -> Figure:
    """Returns a figure of validation loss and metric by epoch.

    Lines are means over seeds, and bands extend from minimum to maximum.
    """
    metric = ranking.runs[0].metric
    figure, axes = row_of_axes(2, width=9.8, height=3.6)
    for ax, name in zip(axes, ("loss", metric), strict=True):
        for configuration, colour in _coloured(ranking.rows):
            # Values of all seeds by epoch; empty without validations
            values = _by_epoch(configuration.runs, name)
            if values:
                means = [*map(statistics.fmean, values.values())]
                ax.plot([*values], means, color=colour, lw=1.6, label=configuration.label)
                lows = [*map(min, values.values())]
                highs = [*map(max, values.values())]
                ax.fill_between([*values], lows, highs, color=colour, alpha=0.15, lw=0)
        unit = " (nats per token)" if name == "loss" else ""
        ax.set(xlabel="epoch", ylabel=f"validation {TITLES.get(name, name)}{unit}")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, axes[1])
    return figure


def _by_epoch(runs: Sequence[RunResult], name: str) -> Mapping[float, list[float]]:
    """Returns the values of a metric by epoch, in ascending order of epochs.

    The last epoch is the last one of the shortest run, so that each mean includes all seeds.
    """
    curves = [
        {
            round(entry["epoch"], 3): entry[name]
            for entry in run.curve
            if entry.get("kind") == "validation" and name in entry
        }
        for run in runs
    ]
    last = min((max(curve) for curve in curves if curve), default=0)
    # epochs of any seed
    epochs = sorted({epoch for curve in curves for epoch in curve if epoch <= last})
    return {epoch: [curve[epoch] for curve in curves if epoch in curve] for epoch in epochs}


def cost_against_quality(ranking: Ranking) -> Figure:
    """Returns a figure of scores versus training minutes and parameters, with a dot per seed."""
    figure, axes = row_of_axes(2, width=9.8, height=3.6)
    for configuration, colour in _coloured(ranking.rows):
        runs = [run for run in configuration.runs if ranking.metric in run.scores]
        minutes = [run.seconds / 60 for run in runs]
        millions = [(run.parameters or 0) / 1e6 for run in runs]
        for ax, costs in zip(axes, (minutes, millions), strict=True):
            scores = configuration.scores(ranking.metric)
            ax.plot(costs, scores, "o", ms=5, alpha=0.85, color=colour, label=configuration.label)
    for ax, name in zip(axes, ("minutes of training", "million parameters"), strict=True):
        ax.set(xlabel=name, ylabel=f"{ranking.part} {TITLES.get(ranking.metric, ranking.metric)}")
    _legend(figure, axes[0])
    return figure


def by_length(ranking: Ranking) -> Figure | None:
    """Returns a figure of BLEU by source length, or None if the runs have no translations.

    The figure follows Bahdanau et al. (2015), figure 2, and Luong et al. (2015), figure 6.
    """
    figure, [ax] = row_of_axes(1, width=7.5, height=3.8)
    judging_metric = metric_of(ranking.runs[0])
    for configuration, colour in _coloured(ranking.rows):
        points = [
            point for run in configuration.runs for point in _scores_by_length(run, judging_metric)
        ]
        # Mean over seeds at each source length
        lengths = sorted({length for length, _ in points})
        means = [statistics.fmean(s for at, s in points if at == length) for length in lengths]
        if lengths:
            ax.plot(lengths, means, "o-", ms=3.5, lw=1.5, color=colour, label=configuration.label)
    if not ax.lines:
        return None
    ax.set(xlabel="words of the source sentence", ylabel=f"{ranking.part} BLEU")
    ax.set_ylim(bottom=0)
    _legend(figure, ax)
    return figure


def _scores_by_length(run: RunResult, judging_metric: Metric) -> list[tuple[float, float]]:
    """Returns the source length in words and BLEU of each length group.

    Returns an empty dictionary if a file is missing or incomplete.
    """
    source = run.lines(".source") or []
    answers = run.lines() or []
    references = run.lines(".reference") or []
    if not len(source) == len(answers) == len(references):
        return []
    points = []
    for group in length_groups(source, FEWEST):
        translations = [answers[i] for i in group.sentences]
        scores = judging_metric.score(translations, [references[i] for i in group.sentences])
        points.append((group.middle, scores["bleu"].score))
    return points


def _legend(figure: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    columns = max(1, round(figure.get_figwidth() / LEGEND_WIDTH))
    rows = math.ceil(len(labels) / columns)
    # Enlarge the figure by the legend, so that the axes keep their size.
    figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    figure.legend(
        handles,
        list(map(literal, labels)),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def bars(ranking: Ranking) -> Figure:
    """Returns a figure of the scores of all seeds, a row per configuration, the best at the top."""
    configurations = ranking.rows
    figure, [ax] = row_of_axes(1, width=7.5, height=0.9 + 0.3 * len(configurations))
    for row, (configuration, colour) in enumerate(_coloured(configurations)):
        scores = configuration.scores(ranking.metric)
        if scores:
            ax.text(
                1.01,
                row,
                f"{statistics.fmean(scores):.1f}",
                transform=ax.get_yaxis_transform(),
                va="center",
                fontsize=9,
            )
            ax.plot(scores, [row] * len(scores), "o", ms=5, alpha=0.8, color=colour)
            ax.plot([statistics.fmean(scores)], [row], "|", ms=15, mew=2, color=colour)
    labels = [literal(configuration.label) for configuration in configurations]
    ax.set_yticks(range(len(labels)), labels, fontsize=8)
    # Inverted limits, so that the best configuration is at the top.
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(
        f"{ranking.part} {TITLES.get(ranking.metric, ranking.metric)} (dots: seeds, line: mean)"
    )
    return figure
