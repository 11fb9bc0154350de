"""Report of runs: their scores, costs and differences as tables and pictures."""

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.analysis.ranking import Ranking
from nmt.analysis.run_results import RunResult, differing
from nmt.analysis.significance import as_spread
from nmt.analysis.tables import ReportTable, latex, markdown, page_table
from nmt.foundation.extras import installed
from nmt.foundation.progress import waiting
from nmt.storage.files import write_atomically
from nmt.sweep.run_status import Run
from nmt.sweep.watch import duration, overall


@dataclass(frozen=True)
class Report:
    """Runs in a ranking for each part of the data with their scores.

    rankings: the test part first
    state: progress of their sweeps
    failures: runs that failed, each with the reason
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
        """The report of runs.

        runs: results
        swept: runs of sweeps, finished or not
        metric: score that ranks them; None for the one that chose the checkpoints, or the first if
            it has no final score
        samples: bootstrap samples of the tests over sentences
        trials: randomisation trials; 0 for none
        """
        states = {run.name: run.state for run in swept}
        # Runs of several sweeps may share a name; then their states cannot be told apart.
        has_state = swept and len(states) == len({run.folder for run in swept})
        notes = [(run.name, run.record().get("failure")) for run in swept]
        rankings = []
        for part in sorted({run.part for run in runs}):
            of_part = [run for run in runs if run.part == part]
            scores = of_part[0].scores
            usual = of_part[0].metric if of_part[0].metric in scores else next(iter(scores))
            rankings.append(Ranking.of(part, of_part, metric or usual, samples, trials))
        return cls(
            rankings,
            overall(swept, states) if has_state else "",
            [(name, str(failure)) for name, failure in notes if failure],
        )

    @property
    def runs(self) -> list[RunResult]:
        return [run for ranking in self.rankings for run in ranking.runs]

    @property
    def is_unfinished(self) -> bool:
        return "to do" in self.state or "running" in self.state

    def tables(self) -> list[ReportTable]:
        tables = [ranking.table() for ranking in self.rankings]
        if self.failures:
            tables.append(ReportTable("Runs that failed", ["run", "why"], self.failures, keys=2))
        return tables


def csv_text(report: Report) -> str:
    """A row for each run, with numbers as they are."""
    keys = differing([run.settings for run in report.runs])
    scores = list(dict.fromkeys(name for run in report.runs for name in run.scores))
    # Scores of another part must not be read as test scores.
    prefix = "test" if all(run.part == "test" for run in report.runs) else "final"
    metric = report.runs[0].metric if report.runs else "score"
    head = ["folder", *keys, "seed", "part", *(f"{prefix}_{name}" for name in scores)]
    head += [f"validation_{metric}", "parameters", "tokens_per_second", "seconds", "updates"]
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow([*head, "memory_mb"])
    for run in report.runs:
        values = [run.settings.get(key, "") for key in keys]
        figures = [run.scores.get(name) for name in scores]
        speed = None if run.speed is None else round(run.speed, 1)
        row = [run.folder, *values, run.seed, run.part, *figures, run.validation.get(run.metric)]
        table.writerow([*row, run.parameters, speed, run.seconds, run.updates, run.memory])
    return written.getvalue()


def write(report: Report, base: Path) -> list[Path]:
    """Writes base.md, .csv, .tex and .html, and .png with matplotlib. Returns their paths."""
    tables = report.tables()
    state = [f"Not finished yet: {report.state}.", ""] if report.is_unfinished else []
    contents: dict[str, Callable[[], bytes]] = {
        ".md": lambda: "\n".join([*state, *map(markdown, tables)]).encode(),
        ".csv": lambda: csv_text(report).encode(),
        ".tex": lambda: "\n".join(map(latex, tables)).encode(),
        ".html": lambda: _page(report, tables),
    }
    files = {ending: base.with_name(base.name + ending) for ending in (*contents, ".png")}
    with waiting(f"drawing {files['.html'].name}"):
        for ending, content in contents.items():
            write_atomically(files[ending], content())
        if not (installed("matplotlib") and report.rankings):
            return [files[ending] for ending in contents]
        from nmt.analysis.charts import bars
        from nmt.drawing.plots import save

        save(bars(report.rankings[0]), files[".png"])
    return list(files.values())


def _page(report: Report, tables: Sequence[ReportTable]) -> bytes:
    from nmt.drawing.pages import page

    runs = report.runs
    count = sum(len(ranking.rows) for ranking in report.rankings)
    note = f"{len(runs)} run{'s' if len(runs) != 1 else ''} of {count} configurations"
    if report.state:
        note += f"; the sweep: {html.escape(report.state)}"
    if runs:
        note += f"; {duration(sum(run.seconds for run in runs))} of training in all."
    sections = []
    for ranking, table in zip(report.rankings, tables, strict=False):
        sections += [page_table(table), *_pictures(ranking)]
    sections += [page_table(table) for table in tables[len(report.rankings) :]]
    return page("Report", note, "\n".join(sections))


def _pictures(ranking: Ranking) -> list[str]:
    """HTML sections, each a picture with its content in words."""
    if not installed("matplotlib"):
        return []
    from nmt.analysis import charts
    from nmt.drawing.plots import svg

    best, worst = (
        f"{ranked.label}, {as_spread(ranked.scores(ranking.metric))}"
        for ranked in (ranking.rows[0], ranking.rows[-1])
    )
    bands = (
        "Means over seeds, as far as all were trained; the bands go from the lowest to the highest."
    )
    papers = "(Bahdanau et al. 2015, figure 2; Luong et al. 2015, figure 6.)"
    pictures = [
        (
            f"{ranking.part.capitalize()} scores",
            f"Best: {best}; worst: {worst}.",
            charts.bars(ranking),
        ),
        ("Learning curves", bands, charts.learning_curves(ranking)),
        ("Cost against quality", "Up and left is better.", charts.cost_against_quality(ranking)),
    ]
    if "bleu" in ranking.runs[0].scores:
        curve = charts.by_length(ranking)
        if curve is not None:
            pictures.append(
                ("Quality by length", f"Does it fall for long sentences? {papers}", curve)
            )
    sections = []
    for title, text, figure in pictures:
        label = html.escape(f"{title}. {text}")
        chart = f'<div class=chart role=img aria-label="{label}">{svg(figure)}</div>'
        note = f"<p class=note>{html.escape(text)}</p>"
        sections.append(f"<section><h2>{title}</h2>{note}{chart}</section>")
    return sections
