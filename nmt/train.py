"""python -m nmt.train [group=choice …] [key=value …]        see conf/train.yaml
python -m nmt.train resume=RUN_DIR                        continues a run
"""

from nmt.configuration.command_line import command_line
from nmt.foundation.deferred import deferred

run = deferred("nmt.pipeline.run_training:train")
main = command_line("train", run, sweep=deferred("nmt.pipeline.sweep_command:sweep"))

if __name__ == "__main__":
    main()
