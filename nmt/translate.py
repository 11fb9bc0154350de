"""python -m nmt.translate model=RUN_DIR [input=FILE] [output=FILE] [search=beam] [format=jsonl] …

One line out for every line in, in order. Without input=, stdin is translated as it arrives; at a
terminal, line by line.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.model_commands:translate")
main = command_line("translate", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
