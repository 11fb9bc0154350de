"""python -m nmt.train [group=choice …] [key=value …]        see conf/train.yaml
python -m nmt.train resume=RUN_DIR                        goes on where a run stopped
"""

from __future__ import annotations

from typing import Any

from nmt.configuration.command_line import command_line


def check(config: dict[str, Any]) -> None:
    """Raises UserError listing everything that is wrong with the configuration of a new run."""
    from nmt.configuration import build

    if not config.get("resume"):
        build.check(config)


def run(config: dict[str, Any]) -> float:
    """Trains, tests and draws one model; returns the test score of the chosen metric."""
    from nmt.training import run as training
    from nmt.task.translation import Translation

    return training.command(Translation, config)


main = command_line("train", check, run)

if __name__ == "__main__":
    main()
