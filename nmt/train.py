"""python -m nmt.train [group=choice …] [key=value …]        see conf/train.yaml
python -m nmt.train resume=RUN_DIR                        goes on where a run stopped
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.training_settings import TrainSettings


def run(settings: TrainSettings) -> float:
    """Trains, tests and draws one model; returns the test score of the chosen metric."""
    from nmt.pipeline.run_training import train

    return train(settings)


main = command_line("train", run)

if __name__ == "__main__":
    main()
