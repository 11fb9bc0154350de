"""HTML page of a report about training runs, with tables, charts and links to the runs."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from nmt.analysis.ranking import Ranking
from nmt.analysis.tables import ReportTable, page_table
from nmt.analysis.verdicts import of_ranking
from nmt.drawing.pages import origin, page, render
from nmt.foundation.extras import installed
from nmt.sweep.watch import duration


def report_page(
    rankings: Sequence[Ranking], tables: Sequence[ReportTable], base: Path, *, state: str
) -> bytes:
    """Returns the HTML page of a report.

    rankings: one ranking per data set
    tables: table of each ranking, and further tables
    base: path of the page without suffix, from which links to run folders start
    state: progress of the runs' sweeps; empty without a sweep
    """
    runs = [run for ranking in rankings for run in ranking.runs]
    note = (
        f"{len(runs)} run{'s' if len(runs) != 1 else ''} of "
        f"{sum(len(ranking.rows) for ranking in rankings)} configurations; total training time "
        f"{duration(sum(run.seconds for run in runs))}. {f'Sweep: {state}.' if state else ''}"
    )
    sections: dict[str, Markup] = {}
    for ranking, table in zip(rankings, tables, strict=False):
        # The first cell of a configuration is a link to its best run by validation.
        folders = [row.best_by_validation().folder for row in ranking.rows]
        links = {(i, 0): os.path.relpath(folder, base.parent) for i, folder in enumerate(folders)}
        sections |= {table.title: page_table(replace(table, links=links)), **_charts(ranking)}
    sections |= {table.title: page_table(table) for table in tables[len(rankings) :]}
    return page(
        "Report",
        note,
        sections.values(),
        lead=[*map(of_ranking, rankings)],
        contents=[*sections],
        facts=origin(),
    )


def _charts(ranking: Ranking) -> dict[str, Markup]:
    """Returns the HTML section of each chart of a ranking, by title."""
    if not installed("matplotlib"):
        return {}
    from nmt.analysis.charts import sections
    from nmt.drawing.plots import svg

    return {
        title: render("report_figure", title=title, text=text, svgs=[*map(svg, figures)])
        for title, (text, figures) in sections(ranking).items()
    }
