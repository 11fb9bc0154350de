"""python -m nmt.cite [model=RUN_DIR]

BibTeX of the papers that nmt implements, or of those that a model's parts and settings come from.
"""

from nmt.configuration.command_line import command

run, main = command("cite", "nmt.analysis.citations:print_papers")

if __name__ == "__main__":
    main()
