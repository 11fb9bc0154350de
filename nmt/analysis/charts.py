"""Charts of a report: scores, learning curves, cost versus quality, quality by source length."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from markupsafe import Markup

from nmt.analysis.chart_lines import add_legend, draw_line, label_ends, line_properties
from nmt.analysis.ranking import Ranking
from nmt.analysis.run_results import RunResult, is_lower_better
from nmt.analysis.word_statistics import count_words, length_groups
from nmt.drawing.pages import render
from nmt.drawing.plots import (
    CHART_COLOURS,
    Figure,
    MaxNLocator,
    keep_inside,
    literal,
    row_of_axes,
    svg,
    values_of,
)
from nmt.metric import TITLES

BEST = CHART_COLOURS[0]
"""Colour of the scores of all configurations that are not significantly worse than the best."""
WORSE = CHART_COLOURS[-2]
"""Colour of the scores of configurations that are significantly worse than the best."""
FEWEST = 10
"""Minimum number of sentences per point in the curve of BLEU by source length."""
NARROW = 6.0
"""Figure width in inches below which the learning curves are stacked: the chart of the metric is
below the chart of the loss, and a legend replaces the labels at the lines.
"""
JITTER = 0.12
"""Vertical distance between the dots of two seeds, as a fraction of the row height."""


def chart_sections(ranking: Ranking, suffix: str = "") -> dict[str, Markup]:
    """Maps the title of each kind of chart to its HTML section: the charts and a description.

    Charts that compare fewer than two values are left out.

    ranking: ranking of the runs
    suffix: end of the titles that do not name the data set of the scores
    """
    metric = TITLES.get(ranking.metric, ranking.metric)
    lower = " Lower is better." if is_lower_better(ranking.runs, ranking.metric) else ""
    costs: dict[str, Callable[[RunResult], float | None]] = {
        "minutes of training": attrgetter("minutes"),
        "million parameters": lambda run: run.parameters and run.parameters / 1e6,
    }
    figures = {
        f"{ranking.part.capitalize()} scores": (
            f"{metric} of each seed (dots) and mean (line). Blue: the best configuration, and "
            f"tested configurations that are not significantly worse.{lower}",
            [_chart(_scores, ranking)],
        ),
        f"Learning curves{suffix}": (
            "Lines are means over seeds, up to the last epoch of the shortest run. Bands extend "
            "from minimum to maximum.",
            [_chart(partial(_curve, name=name), ranking) for name in _curve_names(ranking)],
        ),
        f"Cost and quality{suffix}": (
            "Each dot is a run. The best runs have a high score and a low cost.",
            [
                _chart(partial(_costs, unit=unit, cost=costs[unit]), ranking, label=add_legend)
                for unit in costs
            ],
        ),
        f"Quality by source length{suffix}": (
            "BLEU of groups of sentences by mean source length, as in Bahdanau et al. (2015), "
            "figure 2, and Luong et al. (2015), figure 6.",
            [_chart(_by_length, ranking)] if "bleu" in ranking.runs[0].scores else [],
        ),
    }
    sections = {}
    for title, (text, charts) in figures.items():
        svgs = [svg(figure) for figure in charts if _compares(figure)]
        if svgs:
            sections[title] = render("report_figure", title=title, text=text, svgs=svgs)
    return sections


def _chart(
    draw: Callable[[Any, Ranking], None],
    ranking: Ranking,
    width: float = 4.9,
    label: Callable[[Any], None] = label_ends,
) -> Figure:
    """Returns a figure with one chart.

    draw: function that draws the chart
    label: function that names the lines
    """
    figure, [axes] = row_of_axes(1, width, height=3.4)
    draw(axes, ranking)
    label(axes)
    return figure


def _compares(figure: Figure) -> bool:
    """Returns whether a chart has points at two or more different x values."""
    return len({float(x) for line in figure.axes[0].lines for x in np.ravel(line.get_xdata())}) > 1


def bars(ranking: Ranking) -> Figure:
    """Returns a figure of the scores of all seeds, a row per configuration, the best at the top."""
    return _chart(_scores, ranking, width=7.5)


def learning_curves(ranking: Ranking, width: float | None = None) -> Figure:
    """Returns a figure of validation loss and metric by epoch.

    Lines are means over seeds, and bands extend from minimum to maximum.

    width: width of the image in inches; None for the usual width. In a narrow image, one chart is
        below the other, and a legend replaces the labels at the lines
    """
    names = _curve_names(ranking)
    width = width or 12.0
    is_narrow = width < NARROW
    height = 0.85 * width * len(names) if is_narrow else 3.8
    figure, row = row_of_axes(len(names), width, height, stacked=is_narrow)
    for axes, name in zip(row, names, strict=True):
        _curve(axes, ranking, name)
        if not is_narrow:
            label_ends(axes)
    if is_narrow:
        add_legend(axes)
    return figure


def _curve_names(ranking: Ranking) -> list[str]:
    return list(dict.fromkeys(["loss", ranking.runs[0].metric]))


def _scores(ax: Any, ranking: Ranking) -> None:
    for row, configuration in enumerate(ranking.rows):
        # The names are at the axis, so the colour shows what no test separates from the best.
        is_worse = ranking.is_tested and not ranking.may_be_best(configuration)
        colour = WORSE if is_worse else BEST
        scores = configuration.scores(ranking.metric)
        gid = values_of(
            f"{configuration.label}, seed {run.seed}: {score:.2f}"
            for run, score in zip(configuration.runs, scores, strict=True)
        )
        heights = [row + JITTER * (i - (len(scores) - 1) / 2) for i in range(len(scores))]
        ax.plot(scores, heights, "o", ms=4.5, color=colour, gid=gid)
        mean = statistics.fmean(scores)
        ax.plot([mean, mean], [row - 0.35, row + 0.35], color=colour, lw=2)
        # The value stands at the right, where no dot is.
        ax.text(
            1.01, row, f"{mean:.1f}", transform=ax.get_yaxis_transform(), va="center", fontsize=9
        )
    labels = [literal(configuration.label) for configuration in ranking.rows]
    ax.figure.set_figheight(0.9 + 0.3 * len(labels))  # inches
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    # Inverted limits, so that the best configuration is at the top.
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(_title(ranking))
    keep_inside(ax, "x", ranking.metric)


def _title(ranking: Ranking) -> str:
    return f"{ranking.part} {TITLES.get(ranking.metric, ranking.metric)}"


def _curve(ax: Any, ranking: Ranking, name: str) -> None:
    for configuration, properties in line_properties(ranking):
        values = _by_epoch(configuration.runs, name)
        draw_line(ax, configuration, properties, values, "epoch {:g}")
        lows = [*map(min, values.values())]
        highs = [*map(max, values.values())]
        ax.fill_between([*values], lows, highs, color=properties["color"], alpha=0.12, lw=0)
    title = "loss (nats)" if name == "loss" else TITLES.get(name, name)
    ax.set(xlabel="epoch", ylabel=f"validation {title}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(left=0)
    keep_inside(ax, "y", name)


def _by_epoch(runs: Sequence[RunResult], name: str) -> Mapping[float, list[float]]:
    """Returns the values of a metric by epoch, in ascending order of epochs.

    The result has only the epochs at which all runs have a value, so each mean includes all seeds.
    """
    curves = [
        {
            round(entry["epoch"], 3): entry[name]
            for entry in run.curve
            if entry.get("kind") == "validation" and name in entry
        }
        for run in runs
    ]
    count = sum(map(bool, curves))
    return {epoch: values for epoch, values in _by_x(curves).items() if len(values) == count}


def _by_x(curves: Sequence[Mapping[float, float]]) -> dict[float, list[float]]:
    """Returns the values of all curves by x value, in ascending order of x."""
    positions = sorted({x for curve in curves for x in curve})
    return {x: [curve[x] for curve in curves if x in curve] for x in positions}


def _costs(ax: Any, ranking: Ranking, cost: Callable[[RunResult], float | None], unit: str) -> None:
    """Draws the scores of all runs against a cost. Other tools have no known cost.

    cost: function that returns the cost of a run; None if unknown
    unit: unit of the cost, as a plural
    """
    for configuration, properties in line_properties(ranking):
        of_nmt = [run for run in configuration.runs if run.answers is None]
        # The number of parameters of runs of older versions is unknown.
        costs = [(run, value) for run in of_nmt if (value := cost(run)) is not None]
        gid = values_of(
            f"{configuration.label}, seed {run.seed}: {run.scores[ranking.metric]:.2f}, "
            f"{value:.3g} {unit}"
            for run, value in costs
        )
        scores = [run.scores[ranking.metric] for run, _ in costs]
        values = [value for _, value in costs]
        ax.plot(values, scores, **{**properties, "ls": "", "ms": 5, "gid": gid})
    ax.set(xlabel=unit, ylabel=_title(ranking))
    ax.locator_params("x", nbins=5)  # fewer labels, so that long ones do not overlap
    keep_inside(ax, "y", ranking.metric)
    keep_inside(ax, "x")


def _by_length(ax: Any, ranking: Ranking) -> None:
    for configuration, properties in line_properties(ranking):
        curves = [_scores_by_length(run) for run in configuration.runs]
        draw_line(ax, configuration, properties, _by_x(curves), "mean length {:g} words")
    ax.set(xlabel="words of the source sentence", ylabel=f"{ranking.part} BLEU")
    ax.set_ylim(bottom=0)
    keep_inside(ax, "y", "bleu")


def _scores_by_length(run: RunResult) -> dict[float, float]:
    """Maps the mean source length of each length group, in words, to the group's BLEU score.

    The lengths are rounded to one decimal. The mapping is empty if a text file of the run is
    missing or incomplete.
    """
    source = run.lines(".source")
    answers = run.lines()
    references = run.references
    scores: dict[float, float] = {}
    if not references or not len(source) == len(answers) == len(references[0]):
        return scores
    for group in length_groups(source, FEWEST):
        translations = [answers[i] for i in group.sentences]
        of_group = [[lines[i] for i in group.sentences] for lines in references]
        mean_length = statistics.fmean(count_words(source[i]) for i in group.sentences)
        scores[round(mean_length, 1)] = run.scorer.bleu_of_group(translations, *of_group)
    return scores
