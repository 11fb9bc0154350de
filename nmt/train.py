"""python -m nmt.train [group=choice …] [key=value …]        see conf/train.yaml
python -m nmt.train resume=RUN_DIR                        continues a run
"""

from nmt.configuration.command_line import command

run, main = command(
    "train", "nmt.pipeline.run_training:train", sweep="nmt.pipeline.sweep_command:sweep"
)

if __name__ == "__main__":
    main()
