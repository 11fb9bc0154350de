"""Report of the runs in some folders, printed and written."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.analysis.run_report import Report, write
from nmt.analysis.run_results import collect
from nmt.analysis.tables import terminal
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)


def report_folders(
    folders: Sequence[str],
    metric: str | None = None,
    output: str | None = None,
    *,
    different_data: bool = False,
    samples: int = 1000,
    trials: int = 1000,
) -> None:
    """Prints the tables of a report, and writes its files.

    folders: runs, sweeps, or folders of them
    metric: score that ranks the runs; None: the one that they were chosen by
    output: path of the files without their ending; None: `report` in the first folder
    different_data: accepts runs of different data
    samples: bootstrap samples of the significance tests
    trials: randomisation trials of the significance tests

    Raises UserError if the folders hold nothing that can be reported.
    """
    runs = collect(folders, different_data=different_data)
    for problem in runs.problems:
        log.warning("%s", problem)
    names = sorted({name for run in runs.finished for name in run.scores})
    if metric is not None and runs.finished and metric not in names:
        raise UserError(
            f"metric={metric}: the runs have no such score (there are: {', '.join(names)})"
        )
    report = Report.of(runs.finished, runs.swept, metric, samples=samples, trials=trials)
    if report.state:
        log.info("the sweep: %s", report.state)
    written = write(report, Path(output) if output else Path(folders[0], "report"))
    # After the files: a reader may close the pipe early.
    for table in report.tables():
        sys.stdout.write(terminal(table))
    log.info("written: %s", ", ".join(map(str, written)))
