"""python -m nmt.label model=RUN_DIR [input=FILE] [output=FILE] [format=jsonl] [explain=page.html]

Labels texts with a model of nmt.classify, one output line per input line. Without input=, lines
from stdin are labelled as they arrive. explain= writes a plot of the importance of each word.
"""

from nmt.configuration.command_line import command

run, main = command("label", "nmt.pipeline.model_commands:label")

if __name__ == "__main__":
    main()
