"""The report of some runs: what there is to say about them, as tables and pictures, and written to files."""

from __future__ import annotations

import csv
import html
import io
import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.analysis.run_results import Configuration, Finished, configurations
from nmt.analysis.significance import (
    LEVEL,
    SignificanceResult,
    mean_and_deviation,
    over_seeds,
    over_sentences,
)
from nmt.analysis.tables import ReportTable, latex, markdown, page_table
from nmt.foundation.extras import installed
from nmt.foundation.progress import waiting
from nmt.metric import Metric
from nmt.storage.files import write_atomically
from nmt.sweep.run_status import Run
from nmt.sweep.watch import duration, overall

log = logging.getLogger(__name__)
TESTED = ("bleu", "chrf")
"""Metrics that sacreBLEU's tests know."""


@dataclass
class Report:
    """`runs` with results, in `configurations`, the best first by `metric`; how far their sweeps are (`state`); and what
    differs from the best by more than chance over sentences (`judged`) and over seeds (`seeds`)."""

    metric: str
    runs: Sequence[Finished]
    configurations: Sequence[Configuration]
    state: str = ""
    failures: Sequence[tuple[str, str]] = ()
    judged: dict[int, SignificanceResult] = field(default_factory=dict)
    seeds: list[float | None] | None = None

    @classmethod
    def of(
        cls,
        runs: Sequence[Finished],
        swept: Sequence[Run],
        metric: str | None,
        *,
        samples: int = 1000,
        trials: int = 0,
    ) -> Report:
        """`metric`: of the test part (None: the one that chose the checkpoints, if it was tested, else BLEU); `samples` and
        `trials`: of the tests over sentences."""
        states = {str(run.folder): run.state for run in swept}
        named = {run.name: run.state for run in swept}
        state = overall(swept, named) if swept and len(named) == len(states) else ""
        failures = [
            (run.name, str(run.record()["failure"])) for run in swept if run.record().get("failure")
        ]
        if not runs:
            return cls(metric or "", [], [], state, failures)
        usual = runs[0].metric if runs[0].metric in runs[0].scores else next(iter(runs[0].scores))
        metric = metric or usual
        found = cls(metric, runs, configurations(runs, metric), state, failures)
        found.seeds = over_seeds([each.of(metric) for each in found.configurations])
        if metric in TESTED:
            found.judged = _judged(found.configurations, metric, samples, trials)
        return found

    def indistinct(self, place: int) -> bool:
        """Whether a configuration may be as good as the best, by every test that could be made."""
        sentences, seeds = self.judged.get(place), self.seeds
        made = [sentences.bootstrap, sentences.randomization] if sentences else []
        made += [seeds[place]] if seeds else []
        known = [p for p in made if p is not None]
        return place == 0 or (bool(known) and all(p > LEVEL for p in known))

    def main_table(self) -> ReportTable:
        """A row for each configuration."""
        keys = list(self.configurations[0].values) or ["run"]
        metrics = [
            name for name in self.runs[0].scores if all(name in run.scores for run in self.runs)
        ]
        metrics.sort(key=lambda name: name != self.metric)
        head = [*keys, "n", *metrics, "p seeds", "p sentences", "parameters", "tokens/s", "minutes"]
        memory = [each for each in self.runs if each.memory]
        head += ["MB"] if memory else []
        rows = []
        for i, each in enumerate(self.configurations):
            values = list(each.values.values()) or [each.label]
            judged, seeds = self.judged.get(i), self.seeds[i] if self.seeds else None
            chance = [judged.bootstrap, judged.randomization] if judged else []
            speeds = [run.speed for run in each.runs if run.speed]
            row = [
                *values,
                str(len(each.runs)),
                *(_spread(each.of(name)) for name in metrics),
                _chance(seeds),
            ]
            row += [" · ".join(_chance(p) for p in chance if p is not None) or "–"]
            row += [f"{each.runs[0].parameters:,}" if each.runs[0].parameters else "–"]
            row += [f"{statistics.median(speeds):,.0f}" if speeds else "–"]
            row += [f"{statistics.mean(run.seconds for run in each.runs) / 60:.1f}"]
            if memory:
                sizes = [run.memory for run in each.runs if run.memory]
                row += [f"{max(sizes):,.0f}" if sizes else "–"]
            rows.append(row)
        dropped = [
            j
            for j, name in enumerate(head)
            if name.startswith("p ") and all(row[j] == "–" for row in rows)
        ]
        head = [name for j, name in enumerate(head) if j not in dropped]
        rows = [[cell for j, cell in enumerate(row) if j not in dropped] for row in rows]
        strong = [i for i in range(len(rows)) if self.indistinct(i)] if len(rows) > 1 else []
        return ReportTable(
            f"Test scores by {self.metric}",
            head,
            rows,
            keys=len(keys),
            strong=strong,
            note=self._note(),
        )

    def _note(self) -> str:
        """How to read the table."""
        said = [f"{self.metric}: {self.runs[0].signatures.get(self.metric, '')}."]
        if any(len(each.runs) > 1 for each in self.configurations):
            said.append("Scores are means ± sample standard deviations over n seeds.")
        if len(self.configurations) > 1:
            said.append("Bold (or *): the best, and what no test tells from it at the 5 % level.")
        if self.seeds:
            said.append(
                "p seeds: would other seeds turn it round? Tukey's range test, corrected for all pairs."
            )
        elif len(self.configurations) > 1 and not installed("scipy"):
            said.append("The test over seeds needs SciPy: pip install '.[sweep]'.")
        if self.judged:
            bounds = max(each.confidence for each in self.judged.values())
            tests = "paired bootstrap" + (
                " · approximate randomisation" if self._randomized else ""
            )
            said.append(
                f"p sentences: would other test sentences? {tests} of the seeds that validation chose, corrected by Holm's "
                f"method; scores of one seed are certain to ± {bounds:.1f} or better over sentences (95 %)."
            )
        return " ".join(said)

    @property
    def _randomized(self) -> bool:
        return any(each.randomization is not None for each in self.judged.values())

    def tables(self) -> list[ReportTable]:
        found = [self.main_table()] if self.runs else []
        if self.failures:
            found.append(ReportTable("Runs that failed", ["run", "why"], self.failures, keys=2))
        return found


def _judged(
    every: Sequence[Configuration], metric: str, samples: int, trials: int
) -> dict[int, SignificanceResult]:
    """Each configuration's chosen seed against the best one's, on the same test sentences."""
    judge, systems, references = judge_of(every[0].runs[0]), dict[str, list[str]](), None
    for i, each in enumerate(every):
        answers, expected = (
            each.chosen().lines("test.txt"),
            each.chosen().lines("test.reference.txt"),
        )
        if answers is None or expected is None or len(answers) != len(expected):
            continue
        if references is None:
            references = expected
        if references == expected:
            systems[str(i)] = answers
    if references is None or "0" not in systems or len(systems) < 2:
        return {}
    found = over_sentences(systems, references, judge, metric, samples=samples, trials=trials)
    return {int(name): each for name, each in found.items()}


def judge_of(run: Finished) -> Metric:
    """The metric of a run, from what its signature says."""
    tokenize = dict(
        part.split(":", 1) for part in run.signatures.get("bleu", "").split("|") if ":" in part
    )
    return Metric(tokenize=tokenize.get("tok", "13a"), lowercase=tokenize.get("case") == "lc")  # type: ignore[arg-type]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _chance(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def csv_text(report: Report) -> str:
    """A row for each run, with numbers as they are."""
    written = io.StringIO()
    keys = list(report.configurations[0].values) if report.configurations else []
    scores = list(dict.fromkeys(name for run in report.runs for name in run.scores))
    table = csv.writer(written, lineterminator="\n")
    validation = f"validation_{report.runs[0].metric}" if report.runs else "validation"
    figures = ["parameters", "tokens_per_second", "seconds", "updates", "memory_mb"]
    table.writerow(
        ["folder", *keys, "seed", *(f"test_{name}" for name in scores), validation, *figures]
    )
    for each in report.configurations:
        for run in each.runs:
            row: list[Any] = [
                run.folder,
                *each.values.values(),
                run.seed,
                *(run.scores.get(name) for name in scores),
            ]
            speed = None if run.speed is None else round(run.speed, 1)
            row += [
                run.validation.get(run.metric),
                run.parameters,
                speed,
                run.seconds,
                run.updates,
                run.memory,
            ]
            table.writerow(["" if cell is None else cell for cell in row])
    return written.getvalue()


def write(report: Report, base: Path) -> list[Path]:
    """Writes base.md, .csv, .tex and .html, and .png where matplotlib is installed; returns them."""
    tables = report.tables()
    state = [f"Not finished yet: {report.state}.", ""] if _unfinished(report) else []
    texts = {
        ".md": "\n".join([*state, *map(markdown, tables)]),
        ".csv": csv_text(report),
        ".tex": "\n".join(map(latex, tables)),
    }
    written = []
    for ending, text in texts.items():
        written.append(base.with_name(base.name + ending))
        write_atomically(written[-1], text.encode())
    written.append(base.with_name(base.name + ".html"))
    with waiting(f"drawing {written[-1].name}"):
        write_atomically(written[-1], _page(report, tables))
        if installed("matplotlib") and report.configurations:
            from nmt.analysis.charts import bars
            from nmt.drawing.plots import save

            written.append(base.with_name(base.name + ".png"))
            save(bars(report.configurations, report.metric), written[-1])
    return written


def _unfinished(report: Report) -> bool:
    return "to do" in report.state or "running" in report.state


def _page(report: Report, tables: Sequence[ReportTable]) -> bytes:
    from nmt.drawing.pages import page

    runs = len(report.runs)
    note = f"{runs} run{'s' if runs != 1 else ''} of {len(report.configurations)} configurations"
    if report.state:
        note += f"; the sweep: {html.escape(report.state)}"
    if report.runs:
        note += f"; {duration(sum(run.seconds for run in report.runs))} of training in all."
    sections = [page_table(table) for table in tables]
    sections[1:1] = _pictures(report)
    return page("Report", note, "\n".join(sections))


def _pictures(report: Report) -> list[str]:
    """Sections of the page, each a picture with what it shows in words."""
    if not installed("matplotlib") or not report.configurations:
        return []
    from nmt.analysis import charts
    from nmt.drawing.plots import svg

    several, name = report.configurations, report.metric
    validated = report.runs[0].metric
    best, worst = several[0], several[-1]
    summary = f"Best: {best.label}, {_spread(best.of(name))}; worst: {worst.label}, {_spread(worst.of(name))}."
    made = [("Test scores", summary, charts.bars(several, name)),
            ("Learning curves", "Means over seeds, as far as all were trained; the bands go from the lowest to the highest.",
             charts.learning_curves(several, validated)),
            ("Cost against quality", "Up and left is better.", charts.cost_against_quality(several, name))]  # fmt: skip
    lengths = (
        charts.by_length(several, judge_of(report.runs[0]))
        if "bleu" in report.runs[0].scores
        else None
    )
    if lengths is not None:
        made.append(("Quality by length",
                     "Does it fall for long sentences? (Bahdanau et al. 2015, figure 2; Luong et al. 2015, figure 6.)",
                     lengths))  # fmt: skip
    return [
        f"<section><h2>{title}</h2><p class=note>{html.escape(said)}</p>"
        f'<div class=chart role=img aria-label="{html.escape(title + ". " + said)}">{svg(figure)}</div></section>'
        for title, said, figure in made
    ]
