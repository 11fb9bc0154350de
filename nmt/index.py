"""python -m nmt.index model=RUN_DIR source=FILE target=FILE output=FILE.safetensors

Creates an index of training sentences by their encoder states. With nmt.serve index=FILE, the web
page shows the training sentences that are most similar to the input.
"""

from nmt.configuration.command_line import command

run, main = command("index", "nmt.pipeline.model_commands:index")

if __name__ == "__main__":
    main()
