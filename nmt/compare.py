"""python -m nmt.compare reference=FILE source=FILE A B …

Compares translations of the same text by several systems. A and B are run folders, checkpoints, or
files with translations of any system. Prints tables, and writes NAME.md, NAME.json and the HTML
page NAME.html.
"""

from nmt.configuration.command_line import command

run, main = command("compare", "nmt.pipeline.model_commands:compare")

if __name__ == "__main__":
    main()
