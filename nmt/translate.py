"""python -m nmt.translate model=RUN_DIR [input=FILE] [output=FILE] [search=beam] [format=jsonl] …

Translates the lines of a file, one output line per input line. Without input=, lines from stdin are
translated as they arrive; at a terminal, the command is interactive.
"""

from nmt.configuration.command_line import command

run, main = command("translate", "nmt.pipeline.model_commands:translate")

if __name__ == "__main__":
    main()
