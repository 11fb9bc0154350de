"""python -m nmt.report FOLDER [FOLDER …] [metric=bleu] [output=NAME]

A report of runs: a table on the terminal, and as Markdown, CSV, LaTeX and one HTML page with
learning curves. Sweeps that are still running can be reported too. With systems=[FILE,…], other
tools' translations of the test text are rows as well; columns=[NAME,…] chooses columns.
"""

from nmt.configuration.command_line import command

run, main = command("report", "nmt.analysis.run_report:report_folders")

if __name__ == "__main__":
    main()
