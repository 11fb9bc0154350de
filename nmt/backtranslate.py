"""python -m nmt.backtranslate synthetic.text=FILE run_dir=OUT [what nmt.train takes]      see conf/backtranslate.yaml

More training pairs from text of one language, and a model trained on all of them. The same command goes on where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.training_settings import BacktranslateSettings


def run(settings: BacktranslateSettings) -> float:
    """Every step that has not been done; returns the test score of the last model."""
    from nmt.pipeline.backtranslation import Backtranslation
    from nmt.train import run as train
    from nmt.translate import run as translate

    return Backtranslation(settings, train, translate).go()


main = command_line("backtranslate", run)

if __name__ == "__main__":
    main()
