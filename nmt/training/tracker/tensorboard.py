"""TensorBoard tracker: event files in the run folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.training.tracker import Tracker


class TensorBoard(Tracker):
    """TensorBoard tracker, which records metrics, texts and figures.

    At the end of the run, the tracker records the configuration as hyperparameters, with the final
    scores.
    """

    package = "tensorboard"

    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=resumed_at)
        self._config = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in config.items()
        }

    def figures(self, figures: Mapping[str, float], update: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, update)

    def text(self, name: str, text: str, update: int) -> None:
        self._writer.add_text(name, text, update)

    def picture(self, name: str, figure: Any, update: int) -> None:
        self._writer.add_figure(name, figure, update)

    def close(self, results: Mapping[str, float] | None) -> None:
        if results is not None:
            from torch.utils.tensorboard.summary import hparams

            events: Any = self._writer.file_writer
            for summary in hparams(
                self._config, {f"final/{name}": value for name, value in results.items()}
            ):
                events.add_summary(summary)
            for name, value in results.items():
                self._writer.add_scalar(f"final/{name}", value)
        self._writer.close()
