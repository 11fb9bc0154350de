"""Settings of synthetic sentence pairs, which nmt.backtranslate makes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import NonNegative, Ratio, Width


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Settings of synthetic pairs; conf/backtranslate.yaml explains the keys."""

    direction: Literal["backward", "forward"] = "backward"
    text: str | None = None
    model: str | list[str] | None = None
    search: Literal["sample", "greedy", "beam"] = "sample"
    width: Width = 5
    keep: Ratio = 1.0
    tag: str | None = "<back>"
    real: NonNegative = 1.0

    def __post_init__(self) -> None:
        if self.model == []:
            raise ValueError(
                "synthetic.model=[]: give a run directory, or several as [A,B], or null"
            )
        # The range of `keep` includes 0, which is invalid here.
        if not self.keep:
            raise ValueError("synthetic.keep=0 keeps nothing: give a share, such as 0.9")
        if self.tag is not None and (not self.tag.strip() or "\n" in self.tag):
            raise ValueError(
                "synthetic.tag: is put in front of the source text: give a word, such as <back>, "
                "or null"
            )

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Errors for a missing text or model, and for a model that a direction cannot use."""
        model = run.value("synthetic.model")
        if run.value("synthetic.direction") == "forward":
            if not model:
                yield ConfigError(
                    "synthetic.model",
                    "is needed to translate forwards: a run directory, or several as [A,B]",
                )
            return
        if not run.value("synthetic.text"):
            yield ConfigError(
                "synthetic.text",
                "give a file with text of the target language, one sentence per line",
            )
        # Such a run is made for one direction; the other direction needs a model of its own.
        initial = next(filter(run.value, ("init", "objective.teacher")), None)
        if initial and not model:
            yield run.error(
                initial,
                "is for the new model, and cannot begin the one that translates backwards: "
                "give synthetic.model too",
            )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys of another search or direction."""
        reasons = {}
        search = run.value("synthetic.search")
        if search != "beam":
            reasons["synthetic.width"] = f"belongs to synthetic.search=beam, and it is {search}"
        if run.value("synthetic.direction") == "forward":
            reasons["synthetic.tag"] = "is for pairs made backwards (synthetic.direction=backward)"
        return reasons
