"""python -m nmt.report FOLDER [FOLDER …] [metric=bleu] [output=NAME]

What some runs have shown: a table on the terminal, and as Markdown, CSV, LaTeX and one HTML page with learning curves.
Sweeps that are still running can be reported too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.analysis_settings import ReportSettings


def run(settings: ReportSettings) -> None:
    """Prints the tables, writes the files; says which."""
    from pathlib import Path

    from nmt.pipeline.run_reports import report_of

    report_of(
        settings.folders,
        settings.metric,
        Path(settings.output) if settings.output else Path(settings.folders[0], "report"),
        different_data=settings.different_data,
        samples=settings.samples,
        trials=settings.trials,
    )


main = command_line("report", run)

if __name__ == "__main__":
    main()
