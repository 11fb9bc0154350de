"""python -m nmt.average models=[A,B,C] output=FILE.safetensors

The mean of the weights of several checkpoints of one network: run directories (their best model)
or files, such as the last-*.safetensors that trainer.keep leaves. The result is a model like any
other.
"""

from nmt.configuration.command_line import command

run, main = command("average", "nmt.storage.averaging:average_checkpoints")

if __name__ == "__main__":
    main()
