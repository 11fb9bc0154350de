"""Charts of a report: scores, learning curves, cost versus quality, quality by source length."""

import math
import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nmt.analysis.ranking import Ranking, metric_of
from nmt.analysis.run_results import Configuration, RunResult
from nmt.analysis.word_statistics import count_words, length_groups
from nmt.drawing.plots import (
    CHART_COLOURS,
    PERCENTAGES,
    Figure,
    MaxNLocator,
    keep_inside,
    literal,
    row_of_axes,
    values_of,
)
from nmt.metric import LOWER_IS_BETTER, TITLES, Metric

PALETTE = CHART_COLOURS[:-1]
"""Colours for the best configurations and, as the last colour, for the worst configuration."""
GREY = CHART_COLOURS[-1]
"""Colour of all configurations between the best configurations and the worst configuration."""
BEST = CHART_COLOURS[0]
"""Colour of the scores of all configurations that are not significantly worse than the best."""
WORSE = CHART_COLOURS[-2]
"""Colour of the scores of configurations that are significantly worse than the best."""
STYLES = ("-", "--", "-.", ":")
"""Line styles of the configurations, so that lines differ without colours."""
MARKERS = "osD^vP*X"
"""Markers of the configurations in line charts, one per configuration."""
FEWEST = 10
"""Minimum number of sentences per point in the curve of BLEU by source length."""
LABEL_SPACE = 0.065
"""Minimum distance of two labels beside a chart, as a fraction of the chart's height."""
NARROW = 6.0
"""Width of a figure in inches below which learning curves have a legend."""
JITTER = 0.12
"""Vertical distance of the dots of two seeds, as a fraction of a row."""


def _looks(
    configurations: Sequence[Configuration],
) -> Iterator[tuple[int, Configuration, dict[str, Any]]]:
    """Yields the index, configuration and line properties of each configuration, the best first."""
    # The worst configuration gets a colour, because it is often the baseline.
    greys = [GREY] * (len(configurations) - len(PALETTE))
    colours = [*PALETTE[:-1], *greys, PALETTE[-1]]
    for i, (configuration, colour) in enumerate(zip(configurations, colours, strict=False)):
        marker = MARKERS[min(i, len(MARKERS) - 1)]
        yield i, configuration, {"color": colour, "ls": STYLES[i % len(STYLES)], "marker": marker}


def sections(ranking: Ranking) -> dict[str, tuple[str, list[Figure]]]:
    """Returns the description and figures of each section of a report, by title.

    Figures that compare fewer than two values are left out.
    """
    metric = TITLES.get(ranking.metric, ranking.metric)
    lower = " Lower is better." if ranking.metric in LOWER_IS_BETTER else ""
    figures = {
        f"{ranking.part.capitalize()} scores": (
            f"{metric} of each seed (dots) and mean (line). Blue: the best configuration, and "
            f"configurations that no test separates from the best one.{lower}",
            [_chart(_scores, ranking, height=_height(ranking))],
        ),
        "Learning curves": (
            "Lines are means over seeds, up to the last epoch of the shortest run. Bands extend "
            "from minimum to maximum.",
            [
                _chart(partial(_labelled_curve, name=name), ranking)
                for name in _curve_names(ranking)
            ],
        ),
        "Cost and quality": (
            "Each dot is a run. The best runs have a high score and a low cost.",
            [
                _chart(partial(_costs, cost=_minutes, unit="minutes of training"), ranking),
                _chart(partial(_costs, cost=_millions, unit="million parameters"), ranking),
            ],
        ),
        "Quality by source length": (
            "BLEU of groups of sentences by mean source length, as in Bahdanau et al. (2015), figure "
            "2, and Luong et al. (2015), figure 6.",
            [_chart(_by_length, ranking)] if "bleu" in ranking.runs[0].scores else [],
        ),
    }
    compared = {
        title: (text, [figure for figure in charts if _compares(figure)])
        for title, (text, charts) in figures.items()
    }
    return {title: section for title, section in compared.items() if section[1]}


def _chart(
    draw: Callable[[Any, Ranking], None], ranking: Ranking, width: float = 4.9, height: float = 3.4
) -> Figure:
    figure, [axes] = row_of_axes(1, width, height)
    draw(axes, ranking)
    return figure


def _compares(figure: Figure) -> bool:
    """Returns whether a chart has points at two places of the horizontal axis."""
    return len({float(x) for line in figure.axes[0].lines for x in np.ravel(line.get_xdata())}) > 1


def bars(ranking: Ranking) -> Figure:
    """Returns a figure of the scores of all seeds, a row per configuration, the best at the top."""
    return _chart(_scores, ranking, 7.5, _height(ranking))


def learning_curves(ranking: Ranking, width: float | None = None) -> Figure:
    """Returns a figure of validation loss and metric by epoch.

    Lines are means over seeds, and bands extend from minimum to maximum.

    width: width of the image in inches; None for the usual width. A narrow image has a legend
        below the charts instead of labels at the lines
    """
    names = _curve_names(ranking)
    if width is None or width >= NARROW:
        figure, row = row_of_axes(len(names), 12.0, 3.8)
        for axes, name in zip(row, names, strict=True):
            _labelled_curve(axes, ranking, name)
        return figure
    figure = Figure(figsize=(width, 0.85 * width * len(names)), layout="constrained")
    for axes, name in zip(figure.subplots(len(names), squeeze=False)[:, 0], names, strict=True):
        _curve(axes, ranking, name)
    coloured = [line for line in axes.lines if line.get_color() != GREY]
    # The legend needs the height of its lines.
    figure.set_figheight(figure.get_figheight() + 0.17 * len(coloured))
    labels = [textwrap.shorten(literal(line.get_label()), 50) for line in coloured]
    greys = len(axes.lines) - len(coloured)
    figure.legend(
        coloured,
        labels,
        loc="outside lower left",
        title=f"grey: {greys} other configurations" if greys else None,
        fontsize=8,
        title_fontsize=8,
        frameon=False,
    )
    return figure


def _height(ranking: Ranking) -> float:
    """Returns the height in inches of the chart of scores, which has one row per configuration."""
    return 0.9 + 0.3 * len(ranking.rows)


def _curve_names(ranking: Ranking) -> list[str]:
    return list(dict.fromkeys(["loss", ranking.runs[0].metric]))


def _scores(ax: Any, ranking: Ranking) -> None:
    for row, configuration in enumerate(ranking.rows):
        runs = [run for run in configuration.runs if ranking.metric in run.scores]
        if not runs:
            continue
        # The names are at the axis, so the colour shows what no test separates from the best.
        is_worse = bool(configuration.chances) and not ranking.may_be_best(configuration)
        colour = WORSE if is_worse else BEST
        scores = [run.scores[ranking.metric] for run in runs]
        middle = row - JITTER * (len(runs) - 1) / 2
        heights = [middle + JITTER * i for i in range(len(runs))]
        gid = values_of(
            f"{configuration.label}, seed {run.seed}: {score:.2f}"
            for run, score in zip(runs, scores, strict=True)
        )
        ax.plot(scores, heights, "o", ms=4.5, color=colour, gid=gid)
        mean = statistics.fmean(scores)
        ax.plot([mean, mean], [row - 0.35, row + 0.35], color=colour, lw=2)
        # The value stands at the right, where no dot is.
        ax.text(
            1.01, row, f"{mean:.1f}", transform=ax.get_yaxis_transform(), va="center", fontsize=9
        )
    labels = [literal(configuration.label) for configuration in ranking.rows]
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    # Inverted limits, so that the best configuration is at the top.
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(_title(ranking))
    _limit(ax, "x", ranking.metric)


def _title(ranking: Ranking) -> str:
    return f"{ranking.part} {TITLES.get(ranking.metric, ranking.metric)}"


def _limit(ax: Any, axis: str, metric: str) -> None:
    """Limits an axis to the range of a metric: 0 to 100 for metrics in per cent."""
    keep_inside(ax, axis, 0.0, 100.0 if metric in PERCENTAGES else math.inf)


def _curve(ax: Any, ranking: Ranking, name: str) -> None:
    title = "loss (nats per token)" if name == "loss" else TITLES.get(name, name)
    for _, configuration, look in _looks(ranking.rows):
        # Values of all seeds by epoch; empty without validations
        values = _by_epoch(configuration.runs, name)
        if values:
            means = {epoch: statistics.fmean(of_seeds) for epoch, of_seeds in values.items()}
            _line(ax, configuration, look, means, "epoch {:g}")
            lows = [*map(min, values.values())]
            highs = [*map(max, values.values())]
            ax.fill_between([*values], lows, highs, color=look["color"], alpha=0.12, lw=0)
    ax.set(xlabel="epoch", ylabel=f"validation {title}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(left=0)
    _limit(ax, "y", name)


def _labelled_curve(ax: Any, ranking: Ranking, name: str) -> None:
    _curve(ax, ranking, name)
    _label_ends(ax)


def _line(
    ax: Any,
    configuration: Configuration,
    look: Mapping[str, Any],
    points: Mapping[float, float],
    place: str,
) -> None:
    """Draws a line with markers that show their values on hover.

    points: values by position on the horizontal axis
    place: format string of a position, for the texts of the markers
    """
    label = configuration.label
    gid = values_of(f"{label}, {place.format(x)}: {y:.2f}" for x, y in points.items())
    layer = 2 + (look["color"] != GREY)
    ax.plot(
        [*points], [*points.values()], lw=1.5, ms=3.5, label=label, gid=gid, zorder=layer, **look
    )


def _label_ends(ax: Any) -> None:
    """Writes the names of lines to the right of a chart, at the height of their ends."""
    low, high = ax.get_ylim()
    lines = sorted(
        (line for line in ax.lines if line.get_color() != GREY),
        key=lambda line: line.get_ydata()[-1],
    )
    heights = _spread([(line.get_ydata()[-1] - low) / (high - low) for line in lines])
    for line, height in zip(lines, heights, strict=True):
        ax.annotate(
            literal(line.get_label()),
            (line.get_xdata()[-1], line.get_ydata()[-1]),
            (1.05, height),
            textcoords="axes fraction",
            va="center",
            fontsize=9,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": line.get_color(), "ls": line.get_linestyle(), "lw": 1.2,
                "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3,
            },
        )  # fmt: skip
    if len(lines) < len(ax.lines):
        others = len(ax.lines) - len(lines)
        ax.set_xlabel(f"{ax.get_xlabel()} (grey: {others} other configurations)")


def _spread(heights: Sequence[float]) -> list[float]:
    """Returns label heights, in ascending order up to 1, moved apart to distances of at least
    LABEL_SPACE.
    """
    steps = LABEL_SPACE * np.arange(len(heights))
    raised = np.maximum.accumulate(np.array(heights) - steps) + steps
    return list(np.minimum(raised, 1.0 - steps[::-1]).tolist())


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


def _minutes(run: RunResult) -> float:
    return run.seconds / 60


def _millions(run: RunResult) -> float:
    return (run.parameters or 0) / 1e6


def _costs(ax: Any, ranking: Ranking, cost: Callable[[RunResult], float], unit: str) -> None:
    """Draws the scores of all runs against a cost.

    cost: function that returns the cost of a run
    unit: unit of the cost, as a plural
    """
    for _, configuration, look in _looks(ranking.rows):
        runs = [run for run in configuration.runs if ranking.metric in run.scores]
        gid = values_of(
            f"{configuration.label}, seed {run.seed}: {run.scores[ranking.metric]:.2f}, "
            f"{cost(run):.3g} {unit}"
            for run in runs
        )
        label = literal(configuration.label) if look["color"] != GREY else None
        style = {**look, "ls": "", "ms": 5, "label": label, "gid": gid}
        ax.plot([*map(cost, runs)], [run.scores[ranking.metric] for run in runs], **style)
    ax.set(xlabel=unit, ylabel=_title(ranking))
    _limit(ax, "y", ranking.metric)
    keep_inside(ax, "x", 0.0, math.inf)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False, fontsize=9)


def _by_length(ax: Any, ranking: Ranking) -> None:
    judging_metric = metric_of(ranking.runs[0])
    for _, configuration, look in _looks(ranking.rows):
        points = [
            point for run in configuration.runs for point in _scores_by_length(run, judging_metric)
        ]
        # Mean over seeds at each source length
        means = {
            length: statistics.fmean(s for at, s in points if at == length)
            for length in sorted({length for length, _ in points})
        }
        if means:
            _line(ax, configuration, look, means, "mean length {:g} words")
    ax.set(xlabel="words of the source sentence", ylabel=f"{ranking.part} BLEU")
    ax.set_ylim(bottom=0)
    _limit(ax, "y", "bleu")
    _label_ends(ax)


def _scores_by_length(run: RunResult, judging_metric: Metric) -> list[tuple[float, float]]:
    """Returns the mean source length in words, with one decimal, and BLEU of each length group.

    Returns an empty list if a text file of the run is missing or incomplete.
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
        mean_length = statistics.fmean(count_words(source[i]) for i in group.sentences)
        points.append((round(mean_length, 1), scores["bleu"].score))
    return points
