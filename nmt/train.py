"""python -m nmt.train [group=choice …] [key=value …]        see conf/train.yaml
python -m nmt.train resume=RUN_DIR                        goes on where a run stopped
"""

from __future__ import annotations

from typing import Any

from nmt.config import command_line


def check(config: dict[str, Any]) -> None:
    """Raises UserError listing everything that is wrong with the configuration of a new run."""
    from nmt import build

    if not config.get("resume"):
        build.check(config)


def run(config: dict[str, Any]) -> float:
    """Trains, tests and draws one model; returns the test score of the chosen metric."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from nmt import training
    from nmt.task.translation import Translation

    hydra = HydraConfig.get()
    if config.get("resume"):
        changes = [text for text in hydra.overrides.task if not text.startswith("resume=")]
        return training.resume(Translation, config["resume"], changes)
    run_dir = hydra.runtime.output_dir if hydra.mode == RunMode.MULTIRUN else config["run_dir"]
    return training.start(Translation, config, run_dir)


main = command_line("train", check, run)

if __name__ == "__main__":
    main()
