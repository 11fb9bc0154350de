"""Table of a ranking, for reports and papers, with selectable columns."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nmt.analysis.ranking import Ranking
from nmt.analysis.ranking_notes import is_compared, paper_caption, report_notes
from nmt.analysis.run_groups import Configuration
from nmt.analysis.significance import as_chances, as_largest, as_spread
from nmt.analysis.tables import ReportTable, with_best
from nmt.foundation.errors import UsageError
from nmt.metric import TITLES

COSTS = ("parameters", "tokens/s", "minutes", "MB")
"""Columns of costs. The LaTeX table contains them only if they are selected."""
HEADS = {
    **TITLES,
    "exact": "exact match (%)",
    "n": "seeds",
    "loss": "loss (nats)",
    "p seeds": "p (seeds)",
    "p sentences": "p (sentences)",
    "tokens/s": "tokens per second",
    "minutes": "training (minutes)",
    "MB": "peak memory (MB)",
}
"""Maps columns of the ranking table to headings, where the heading differs from the column's
name.
"""
NAMES = {head: name for name, head in HEADS.items()}
"""Maps headings of the ranking table to the names of its columns."""


def ranking_table(ranking: Ranking, names: Sequence[str] | None = None) -> ReportTable:
    """Returns a table with a row for each configuration.

    names: columns of the table by name or heading, in this order; None for all columns

    Raises UsageError for an unknown column.
    """
    columns = _columns(ranking, as_chances)
    in_table = _selected(ranking, names, [*columns])
    omitted = {*COSTS, "exact"} - {ranking.metric}
    in_paper = in_table if names else [name for name in in_table if name not in omitted]
    title = f"{ranking.part.capitalize()} scores"
    paper = _table(
        ranking,
        title,
        _columns(ranking, as_largest),
        in_paper,
        head=_headings(in_paper),
        note=paper_caption(ranking, in_paper),
    )
    table = _table(
        ranking,
        f"{title}, sorted by {TITLES.get(ranking.metric, ranking.metric)}",
        columns,
        in_table,
        head=[HEADS.get(name, name) for name in in_table],
        note=report_notes(ranking, in_table),
    )
    return replace(table, paper=paper)


def _selected(
    ranking: Ranking, names: Sequence[str] | None, available: Sequence[str]
) -> Sequence[str]:
    """Returns the columns of the ranking table by name.

    names: columns by name or heading; None for all columns
    available: names of all columns

    Raises UsageError for an unknown column.
    """
    if not names:
        return available
    selected = [NAMES.get(name, name) for name in names]
    # Columns that distinguish the rows come first, unless they are selected at another place.
    required = _required(ranking, selected)
    if not {*required} <= {*selected}:
        selected = [*required, *(name for name in selected if name not in required)]
    unknown = [name for name in selected if name not in available]
    if unknown:
        raise UsageError(
            f"columns=[{','.join(selected)}]: column {unknown[0]} not found; available: "
            f"{', '.join(available)}"
        )
    return selected


def _required(ranking: Ranking, selected: Sequence[str]) -> Sequence[str]:
    """Returns the columns that a table needs to distinguish its rows.

    ranking: ranking of the table
    selected: columns that the table already has
    """
    keys = list(ranking.rows[0].values)
    if "system" not in keys:
        return [] if {*keys} & {*selected} else keys
    # Rows of other systems have only a name, and rows of nmt differ in their settings.
    num_names = len({row.values["system"] for row in ranking.rows})
    is_distinct = num_names == len(ranking.rows) or {*keys[1:]} & {*selected}
    return ["system"] if is_distinct else keys


def _table(
    ranking: Ranking,
    title: str,
    columns: Mapping[str, Sequence[str]],
    names: Sequence[str],
    head: Sequence[str],
    note: str,
) -> ReportTable:
    """Returns the ranking table.

    title: title of the table
    columns: cells of each column, by name
    names: columns of the table, in this order
    head: heading of each column of the table
    note: explanation below the table
    """
    cells = []
    if is_compared(ranking, names):
        column = names.index(ranking.metric)
        cells = [(row, column) for row in range(len(ranking.rows))]
    # All rows have a bar, and only rows that may be the best are bold.
    bold = [cell for cell in cells if ranking.may_be_best(ranking.rows[cell[0]])]
    keys = ranking.rows[0].values.keys() | {"run"}
    table = ReportTable(
        title,
        head,
        rows=list(zip(*(columns[name] for name in names), strict=True)),
        keys=sum(name in keys for name in names),
        note=note,
    )
    return replace(with_best(table, [cells]), bold=bold)


def _columns(ranking: Ranking, p_values: Callable[..., str]) -> dict[str, list[str]]:
    """Returns the cells of each non-empty column of the ranking table, by column name.

    p_values: function that formats the p-values of the tests over test sentences
    """
    rows = ranking.rows
    settings = {key: [row.values[key] for row in rows] for key in rows[0].values}
    metrics = [
        name for name in ranking.runs[0].scores if all(name in run.scores for run in ranking.runs)
    ]
    metrics.sort(key=lambda name: name != ranking.metric)
    columns = {
        **(settings or {"run": [row.label for row in rows]}),
        "n": [str(len(row.runs)) for row in rows],
        **{name: [as_spread(row.scores(name)) for row in rows] for name in metrics},
        "p seeds": [as_chances(row.over_seeds) for row in rows],
        "p sentences": [p_values(*row.sentence_chances) for row in rows],
        "parameters": [_cost(row, "parameters") for row in rows],
        "tokens/s": [_cost(row, "speed", statistics.median) for row in rows],
        "minutes": [_cost(row, "minutes", statistics.fmean, digits=1) for row in rows],
        "MB": [_cost(row, "memory") for row in rows],
    }
    return {name: cells for name, cells in columns.items() if {*cells} != {"–"}}


def _headings(columns: Sequence[str]) -> list[str]:
    """Returns the headings of a LaTeX table: titles of metrics, and short names of settings."""
    names = [column.rpartition(".")[2] for column in columns]
    return [
        TITLES.get(column, name.replace("_", " ") if names.count(name) == 1 else column)
        for column, name in zip(columns, names, strict=True)
    ]


def _cost(
    row: Configuration,
    name: str,
    summary: Callable[[list[float]], float] = max,
    digits: int = 0,
) -> str:
    """Returns a cost of the runs of a configuration as text; "–" if unknown.

    name: attribute of the runs
    summary: function of the runs' values
    digits: number of decimals
    """
    values = [value for run in row.runs if (value := getattr(run, name))]
    return f"{summary(values):,.{digits}f}" if values else "–"
