"""python -m nmt.label model=RUN_DIR [input=FILE] [output=FILE] [format=jsonl] [explain=page.html]

Labels texts with a model of nmt.classify: one line out for every line in, in order. Without
input=, lines from stdin are labelled as they arrive.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.model_commands:label")
main = command_line("label", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
