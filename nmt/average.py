"""python -m nmt.average models=[A,B,C] output=FILE.safetensors

Averages the weights of several checkpoints of the same network. A model is a run folder (its best
checkpoint is used) or a checkpoint file, such as last-*.safetensors, which trainer.keep retains.
The result is a checkpoint file that can be used like any other model.
"""

from nmt.configuration.command_line import command

run, main = command("average", "nmt.storage.averaging:average_checkpoints")

if __name__ == "__main__":
    main()
