"""python -m nmt.classify data=tsv data.train=FILE data.validation=FILE data.text=text data.label=label run_dir=OUT
python -m nmt.classify resume=RUN_DIR                       goes on where a run stopped

Trains a text classifier; see conf/classify.yaml. `python -m nmt.label model=RUN_DIR` labels texts with it. This command
does the same if it is given model=.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from nmt import label
from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.training_settings import ClassifySettings


def run(settings: ClassifySettings) -> float:
    """Trains, tests and explains one model; returns the test score of the chosen metric."""
    from nmt.pipeline.run_training import train

    return train(settings)


_train = command_line("classify", run)


def main() -> None:
    """Trains; with model=, labels texts as nmt.label does."""
    label.main() if any(word.startswith("model=") for word in sys.argv[1:]) else _train()


if __name__ == "__main__":
    main()
