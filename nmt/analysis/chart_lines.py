"""Lines of the configurations in a chart: colours, values, and labels or a legend."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nmt.analysis.ranking import Ranking
from nmt.analysis.run_groups import Configuration
from nmt.drawing.plots import CHART_COLOURS, literal, values_of

PALETTE = CHART_COLOURS[:-1]
"""Colours for the best configurations and, as the last colour, for the worst configuration."""
GREY = CHART_COLOURS[-1]
"""Colour of all configurations between the best configurations and the worst configuration."""
STYLES = ("-", "--", "-.", ":")
"""Line styles of the configurations, so that lines differ without colours."""
MARKERS = "osD^vP*X"
"""Markers of the configurations in line charts, one per configuration."""
LABEL_SPACE = 0.065
"""Minimum distance between two labels beside a chart, as a fraction of the chart's height."""


def line_properties(ranking: Ranking) -> Iterator[tuple[Configuration, dict[str, Any]]]:
    """Yields each configuration with the matplotlib properties of its line, the best configuration
    first."""
    # The worst configuration gets a colour, because it is often the baseline.
    greys = [GREY] * (len(ranking.rows) - len(PALETTE))
    colours = [*PALETTE[:-1], *greys, PALETTE[-1]]
    for i, (configuration, colour) in enumerate(zip(ranking.rows, colours, strict=False)):
        yield (
            configuration,
            {
                "color": colour,
                "label": None if colour == GREY else literal(configuration.label),
                "ls": STYLES[i % len(STYLES)],
                "marker": MARKERS[min(i, len(MARKERS) - 1)],
                "zorder": 2 + (colour != GREY),
            },
        )


def draw_line(
    ax: Any,
    configuration: Configuration,
    properties: Mapping[str, Any],
    values: Mapping[float, Sequence[float]],
    place: str,
) -> None:
    """Draws the means of values as a line with markers that show their values on hover.

    properties: matplotlib properties of the line
    values: values of all seeds by x value
    place: format string that converts an x value to text, for the text shown on hover
    """
    means = {x: statistics.fmean(of_seeds) for x, of_seeds in values.items()}
    # matplotlib draws no marker for NaN.
    gid = values_of(
        f"{configuration.label}, {place.format(x)}: {y:.2f}"
        for x, y in means.items()
        if math.isfinite(y)
    )
    ax.plot([*means], [*means.values()], lw=1.5, ms=3.5, gid=gid, **properties)


def label_ends(axes: Any) -> None:
    """Writes the name of each line to the right of a chart, at the height at which the line ends.
    Names that would overlap are moved apart."""
    low, high = axes.get_ylim()
    lines = [
        line
        for line in axes.get_legend_handles_labels()[0]
        if len(line.get_xdata()) and math.isfinite(line.get_ydata()[-1])
    ]
    lines.sort(key=lambda line: line.get_ydata()[-1])
    # Height of the end of each line, as a fraction of the height of the chart
    ends = np.array([(line.get_ydata()[-1] - low) / (high - low) for line in lines])
    # Labels move up to distances of at least LABEL_SPACE, and down below the top of the chart.
    steps = LABEL_SPACE * np.arange(len(lines))
    raised = np.maximum.accumulate(ends - steps) + steps
    for line, height in zip(lines, np.minimum(raised, 1.0 - steps[::-1]), strict=True):
        axes.annotate(
            line.get_label(),
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
    if greys := _count_greys(axes):
        axes.set_xlabel(f"{axes.get_xlabel()}\n(grey: {greys} other configurations)")


def _count_greys(axes: Any) -> int:
    return sum(line.get_color() == GREY for line in axes.lines)


def add_legend(axes: Any) -> None:
    """Adds a legend of the lines below the axes, and makes the figure taller by the height of the
    legend."""
    handles, labels = axes.get_legend_handles_labels()
    greys = _count_greys(axes)
    axes.figure.legend(
        handles,
        [label if len(label) <= 50 else f"{label[:24]}…{label[-25:]}" for label in labels],
        loc="outside lower left",
        title=f"grey: {greys} other configurations" if greys else None,
        fontsize=8,
        title_fontsize=8,
        frameon=False,
    )
    axes.figure.set_figheight(axes.figure.get_figheight() + 0.17 * len(labels))
