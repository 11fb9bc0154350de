"""python -m nmt.index model=RUN_DIR source=FILE target=FILE output=FILE.safetensors

An index of training sentences by their encoder states: nmt.serve index=FILE shows the sentences
that are most similar to an input for the model.
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.model_commands:index")
main = command_line("index", run, sweep=deferred("nmt.pipeline.one_after_another:run_all"))

if __name__ == "__main__":
    main()
