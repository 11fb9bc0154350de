"""Settings of the commands nmt.report and nmt.compare."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nmt.configuration.build import Group
from nmt.configuration.faults import ConfigError, broken
from nmt.configuration.settings import Settings
from nmt.foundation.ranges import Count, Positive, Size


@dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """Settings of nmt.report; conf/report.yaml describes the keys."""

    folders: list[str]
    metric: str | None = None
    output: str | None = None
    systems: list[str] | None = None
    columns: list[str] | None = None
    figures: Literal["png", "pdf", "svg"] = "png"
    figure_width: Positive | None = None
    font_size: Positive | None = None
    different_data: bool = False
    samples: Size = 1000
    trials: Count = 1000

    def conflicts(self) -> Iterable[ConfigError]:
        return broken(
            (not self.folders, "folders", "name a folder of runs, as in nmt.report runs/x", [])
        )


@dataclass(frozen=True, kw_only=True)
class CompareSettings(Settings):
    """Settings of nmt.compare; conf/compare.yaml describes the keys."""

    systems: list[str]
    reference: str
    source: str | None = None
    train: str | None = None
    output: str = "comparison"
    examples: Count = 20
    device: str = "auto"
    samples: Size = 1000
    trials: Count = 10000
    metric: Group

    def conflicts(self) -> Iterable[ConfigError]:
        repeated = sorted({name for name in self.systems if self.systems.count(name) > 1})
        return [
            *super().conflicts(),
            *broken(
                (
                    not self.systems,
                    "systems",
                    "name at least one run, model or file, as in nmt.compare … A B",
                    [],
                ),
                *((True, "systems", "appears twice; name it once", name) for name in repeated),
            ),
        ]
