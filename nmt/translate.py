"""python -m nmt.translate model=RUN_DIR [input=FILE] [output=FILE] [search=beam] [format=jsonl] …

One line out for every line in, in order. Without input=, stdin is translated as it arrives; at a
terminal, line by line.
"""

from nmt.configuration.command_line import command

run, main = command("translate", "nmt.pipeline.model_commands:translate")

if __name__ == "__main__":
    main()
