"""python -m nmt.report FOLDER [FOLDER …] [metric=bleu] [output=NAME]

A report of runs: a table on the terminal, and as Markdown, CSV, LaTeX and one HTML page with
learning curves. Sweeps that are still running can be reported too.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred(
    "nmt.analysis.report_folders:report_folders",
    "folders",
    "metric",
    "output",
    "different_data",
    "samples",
    "trials",
)
main = command_line("report", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
