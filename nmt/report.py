"""python -m nmt.report FOLDER [FOLDER …] [metric=bleu] [output=NAME]

Compares training runs, including those of a sweep that is still running. Prints a table, and writes
it as Markdown, CSV, JSON, LaTeX and an HTML page with learning curves. systems=[FILE,…] adds
translations of the test set by other systems as rows; columns=[NAME,…] selects the columns.
"""

from nmt.configuration.command_line import command

run, main = command("report", "nmt.analysis.run_report:report_folders")

if __name__ == "__main__":
    main()
