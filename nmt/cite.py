"""python -m nmt.cite [model=RUN_DIR]

Prints the BibTeX entries of all papers that nmt implements or, with model=, of the papers behind
the components and settings of the model.
"""

from nmt.configuration.command_line import command

run, main = command("cite", "nmt.analysis.citations:print_papers")

if __name__ == "__main__":
    main()
