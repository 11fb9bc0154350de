"""A report, printed and written: what nmt.report does, and what a sweep ends with."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.analysis.run_report import Report, write
from nmt.analysis.run_results import collect
from nmt.analysis.tables import terminal
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)


def report_of(
    folders: Sequence[str],
    metric: str | None,
    output: Path,
    *,
    different_data: bool = False,
    samples: int = 1000,
    trials: int = 1000,
) -> None:
    """Raises UserError if the folders hold nothing that can be reported."""
    runs, swept, wrong = collect(folders, different_data=different_data)
    for problem in wrong:
        log.warning("%s", problem)
    names = sorted({name for run in runs for name in run.scores})
    if metric is not None and runs and metric not in names:
        raise UserError(
            f"metric={metric}: the runs have no such score (there are: {', '.join(names)})"
        )
    found = Report.of(runs, swept, metric, samples=samples, trials=trials)
    if found.state:
        log.info("the sweep: %s", found.state)
    written = write(found, output)
    for table in found.tables():  # after the files: a reader may close the pipe early
        sys.stdout.write(terminal(table))
    log.info("written: %s", ", ".join(map(str, written)))
