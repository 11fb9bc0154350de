"""python -m nmt.index model=RUN_DIR source=FILE target=FILE output=FILE.safetensors

An index of training sentences by their encoder states: nmt.serve index=FILE shows the sentences
that are most similar to an input for the model.
"""

from nmt.configuration.command_line import command

run, main = command("index", "nmt.pipeline.model_commands:index")

if __name__ == "__main__":
    main()
