"""python -m nmt.compare reference=FILE source=FILE A B …

Common features and differences of translations of the same text. A, B: run directories, models,
or files that any system has written. Prints tables, and writes NAME.md, NAME.json and a page
NAME.html.
"""

from nmt.configuration.command_line import command

run, main = command("compare", "nmt.pipeline.model_commands:compare")

if __name__ == "__main__":
    main()
