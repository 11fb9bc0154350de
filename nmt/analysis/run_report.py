"""Report about training runs (nmt.report): tables, figures and an HTML page of scores, costs and
differences."""

import csv
import io
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from markupsafe import Markup

from nmt.analysis.collected_results import collect, with_systems
from nmt.analysis.ranking import Ranking
from nmt.analysis.ranking_table import ranking_table
from nmt.analysis.result_entries import entries_text
from nmt.analysis.run_groups import differing
from nmt.analysis.run_results import RunResult
from nmt.analysis.tables import (
    ReportTable,
    latex,
    markdown,
    page_table,
    terminal,
)
from nmt.drawing import USUAL, FigureStyle
from nmt.drawing.pages import origin, page
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.extras import installed
from nmt.foundation.part_limits import broken, refuse
from nmt.foundation.progress import waiting
from nmt.foundation.ranges import Count, Positive, Size
from nmt.storage.files import check_base_name, write_atomically
from nmt.sweep.run_status import Run
from nmt.sweep.watch import duration, overall

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Report:
    """Report about training runs.

    rankings: one ranking per data set, test before validation
    state: progress of the runs' sweeps; empty without a sweep
    failures: failed runs, each with the reason
    """

    rankings: Sequence[Ranking]
    state: str = ""
    failures: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(
        cls,
        runs: Sequence[RunResult],
        swept: Sequence[Run],
        metric: str | None,
        *,
        samples: int = 1000,
        trials: int = 0,
    ) -> "Report":
        """Returns the report of runs, with rankings and significance tests.

        runs: results of finished runs
        swept: finished and unfinished runs of sweeps
        metric: metric of the ranking; None for the metric that selected the checkpoints, or the
            first metric with a final score
        samples: number of bootstrap samples of the tests over test sentences
        trials: number of randomisation trials; 0 disables the test
        """
        states = {run.name: run.state for run in swept}
        # Without unique names, as in several sweeps, the states cannot be distinguished.
        has_state = swept and len(states) == len({run.folder for run in swept})
        notes = [(run.name, run.record().get("failure")) for run in swept if not run.finished]
        rankings = []
        for part in sorted({run.part for run in runs}):
            of_part = [run for run in runs if run.part == part]
            # Translations of other systems lack the scores of a plugin's metric.
            shared = [name for name in of_part[0].scores if all(name in r.scores for r in of_part)]
            if not shared:
                folders = " and ".join(str(run.folder) for run in (of_part[0], of_part[-1]))
                raise UserError(f"{folders} have no common metric; report them separately")
            default = of_part[0].metric if of_part[0].metric in shared else shared[0]
            rankings.append(Ranking.of(part, of_part, metric or default, samples, trials))
        return cls(
            rankings,
            overall(swept, states) if has_state else "",
            [(name, str(failure)) for name, failure in notes if failure],
        )

    @property
    def runs(self) -> list[RunResult]:
        return [run for ranking in self.rankings for run in ranking.runs]

    @property
    def lead(self) -> list[str]:
        """Sentences with the main result of each ranking."""
        return [ranking.sentence for ranking in self.rankings]

    def tables(self, columns: Sequence[str] | None = None) -> list[ReportTable]:
        """Returns a table for each ranking, and a table of failed runs if there are any.

        columns: columns of the rankings, in this order; None for all columns
        """
        failed = ReportTable("Failed runs", ["run", "reason"], self.failures, keys=2)
        tables = [ranking_table(ranking, columns) for ranking in self.rankings]
        return [*tables, failed] if self.failures else tables


def csv_text(report: Report) -> str:
    """Returns a CSV table with one row per run and unrounded values; "" without runs."""
    keys = differing([run.settings for run in report.runs])
    scores = list(dict.fromkeys(name for run in report.runs for name in run.scores))
    # Validation scores must not be mistaken for test scores.
    prefix = "test" if all(run.part == "test" for run in report.runs) else "final"
    rows: list[dict[str, Any]] = [
        {
            "folder": run.answers or run.folder,
            **{key: run.settings.get(key, "") for key in keys},
            "seed": run.seed if run.answers is None else None,
            "part": run.part,
            **{f"{prefix}_{name}": run.scores.get(name) for name in scores},
            f"validation_{report.runs[0].metric}": run.validation.get(report.runs[0].metric),
            "parameters": run.parameters,
            "tokens_per_second": run.speed and round(run.speed, 1),
            "seconds": run.seconds or None,  # none of other tools
            "updates": run.updates or None,
            "memory_mb": run.memory,
        }
        for run in report.runs
    ]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerows([*rows[:1], *(row.values() for row in rows)])  # keys of the first row: head
    return written.getvalue()


def write(
    report: Report,
    tables: Sequence[ReportTable],
    base: Path,
    figures: str = "png",
    style: FigureStyle = USUAL,
) -> list[Path]:
    """Writes a report to BASE.md, .csv, .json, .tex and .html, and returns the paths. With
    matplotlib, also writes scores as BASE.png and learning curves as BASE.curves.png.

    report: report to write
    tables: tables of the report
    base: path of the files without suffix
    figures: file format of the figures: "png", "pdf" or "svg"
    style: width and font size of the figures
    """
    state = [f"Sweep: {report.state}."] if report.state else []
    texts = [f"{sentence}\n" for sentence in [*state, *report.lead]]
    with waiting(f"drawing {base.name}.html"):
        # The table of failed runs, which follows the rankings, is not part of a paper.
        contents = {
            ".md": "\n".join([*texts, *map(markdown, tables)]).encode(),
            ".csv": csv_text(report).encode(),
            ".json": entries_text(report.rankings).encode(),
            ".tex": "\n".join(map(latex, tables[: len(report.rankings)])).encode(),
            ".html": report_page(report, tables, base),
        }
        for ending, content in contents.items():
            write_atomically(Path(f"{base}{ending}"), content)
        files = [Path(f"{base}{ending}") for ending in contents]
        if installed("matplotlib") and report.rankings:
            from nmt.analysis.charts import bars, learning_curves
            from nmt.drawing.plots import save

            ranking = report.rankings[0]
            drawn = {"": bars(ranking), ".curves": learning_curves(ranking, style.width)}
            for kind, figure in drawn.items():
                files.append(Path(f"{base}{kind}.{figures}"))
                save(figure, files[-1], style)
    return files


def report_folders(
    *,
    folders: list[str],
    metric: str | None = None,
    output: str | None = None,
    systems: list[str] | None = None,
    columns: list[str] | None = None,
    figures: Literal["png", "pdf", "svg"] = "png",
    figure_width: Positive | None = None,
    font_size: Positive | None = None,
    different_data: bool = False,
    samples: Size = 1000,
    trials: Count = 1000,
) -> None:
    """Prints the tables of a report and writes its files.

    folders: folders of runs or sweeps, or parent folders
    metric: metric of the ranking; None for the metric that selected the checkpoints
    output: path of the files without suffix; None for `report` in the first folder
    systems: files with other tools' translations of the test set, as FILE or NAME=FILE, each of
        which becomes a row
    columns: columns of the tables, in this order; None for all columns
    figures: file format of the figures: png, pdf or svg
    figure_width: width of the figures in inches; None for the usual width
    font_size: size of the text of the figures in points; None for the usual sizes
    different_data: whether to accept runs with different data
    samples: number of bootstrap samples of the significance tests
    trials: number of randomisation trials of the significance tests

    Raises UserError if no run is found, or a column or file does not match the runs.
    """
    refuse(broken((not folders, "folders", "give a folder of runs, as in nmt.report runs/x", [])))
    base = Path(output or Path(folders[0], "report"))
    runs = collect(folders, different_data=different_data)
    check_base_name(base)
    finished = with_systems(runs.finished, systems) if systems else runs.finished
    for run in finished:
        if metric is not None and metric not in run.scores:
            raise UsageError(
                f"metric={metric}: score not found in {run.answers or run.folder}; available: "
                f"{', '.join(sorted(run.scores))}"
            )
    report = Report.of(finished, runs.swept, metric, samples=samples, trials=trials)
    tables = report.tables(columns)
    if report.state:
        log.info("sweep: %s", report.state)
    written = write(report, tables, base, figures, FigureStyle(figure_width, font_size))
    # Print after writing the files, because a reader may close the pipe early.
    sys.stdout.write("\n".join([*report.lead, "", *map(terminal, tables)]))
    log.info("wrote %s", ", ".join(map(str, written)))


def report_page(report: Report, tables: Sequence[ReportTable], base: Path) -> bytes:
    """Returns the HTML page of a report.

    report: report to show
    tables: table of each ranking, and further tables
    base: path of the page without suffix; links to run folders are relative to its folder
    """
    rankings = report.rankings
    count = sum(run.answers is None for run in report.runs)
    rows = sum(row.runs[0].answers is None for ranking in rankings for row in ranking.rows)
    note = (
        f"{count} run{'s' if count != 1 else ''} of "
        f"{rows} configuration{'s' if rows != 1 else ''}; total training time "
        f"{duration(sum(run.seconds for run in report.runs))}. "
        f"{f'Sweep: {report.state}.' if report.state else ''}"
    )
    sections: dict[str, Markup] = {}
    for ranking, table in zip(rankings, tables, strict=False):
        # The first cell of a configuration is a link to its best run by validation. Other tools
        # have no run.
        links = {
            (i, 0): quote(os.path.relpath(run.folder, base.parent))
            for i, run in enumerate(row.best_by_validation() for row in ranking.rows)
            if run.answers is None
        }
        sections[table.title] = page_table(replace(table, links=links))
        if installed("matplotlib"):
            from nmt.analysis.charts import chart_sections

            # Sections of several rankings need different titles.
            suffix = f" of {ranking.part} runs" if len(rankings) > 1 else ""
            sections |= chart_sections(ranking, suffix)
    sections |= {table.title: page_table(table) for table in tables[len(rankings) :]}
    return page(
        "Report",
        note,
        sections.values(),
        lead=report.lead,
        contents=[*sections],
        facts=origin(),
    )
