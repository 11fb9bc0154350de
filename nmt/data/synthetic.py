"""Settings of synthetic sentence pairs, which nmt.backtranslate generates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nmt.foundation.part_limits import ConfigError, RunView, broken, idle_keys
from nmt.foundation.ranges import Count, NonNegative, Ratio, Size, Width


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Settings of synthetic sentence pairs.

    direction: backward translates target text into the source language, forward the reverse; both
        translates both sides of the training pairs (data diversification, Nguyen et al. 2020)
    text: file of monolingual text, one sentence per line; None with forward uses the training
        sources
    model: run folder of the translation model, or several run folders for an ensemble. With both:
        run folders of models of either direction, each of which translates the text of its source
        language. With None, backward and both train models first
    models: number of models that are trained for each direction with direction=both
    search: sample, greedy or beam
    width: beam width in hypotheses, used with search=beam only
    top_k: number of most probable tokens from which search=sample draws; 0 for all tokens
    keep: fraction of the translations to keep, best log-probability per word first
    tag: string prepended to back-translated sources; None without a tag
    real: passes over the real pairs per pass over the synthetic pairs; 0 uses only synthetic pairs
    """

    direction: Literal["backward", "forward", "both"] = "backward"
    text: str | None = None
    model: str | list[str] | None = None
    models: Size = 1
    search: Literal["sample", "greedy", "beam"] = "sample"
    width: Width = 5
    top_k: Count = 0
    keep: Ratio = 1.0
    tag: str | None = "<back>"
    real: NonNegative = 1.0

    def __post_init__(self) -> None:
        if self.model == []:
            raise ValueError(
                "synthetic.model=[]: give a run folder, several run folders [A,B], or null"
            )
        # The type Ratio of `keep` includes 0, which is invalid.
        if not self.keep:
            raise ValueError("synthetic.keep=0: must be above 0, such as 0.9")
        if self.tag is not None and (not self.tag.strip() or "\n" in self.tag):
            raise ValueError(
                "synthetic.tag: must be a non-empty string without line breaks, such as <back>, "
                "or null"
            )

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error for each required monolingual text or translation model that is missing,
        and for each text or model that is not supported with the chosen `synthetic.direction`, and
        for guided alignment.
        """
        guided = run.value("objective.guided_alignment")
        model = run.value("synthetic.model")
        direction = run.value("synthetic.direction")
        is_backward = direction not in ("both", "forward")
        yield from broken(
            (
                guided,
                "objective.guided_alignment",
                "the final model is trained on a mixture of corpora, which cannot be aligned; set "
                "objective.guided_alignment=0",
                guided,
            ),
            *(
                (
                    direction == "both" and run.value(key),
                    key,
                    "not supported with synthetic.direction=both, which trains new models and "
                    "translates only the training pairs; leave this key out",
                    run.value(key),
                )
                for key in ("synthetic.text", "init", "objective.teacher")
            ),
            (
                direction == "forward" and not model,
                "synthetic.model",
                "required for synthetic.direction=forward; give a run folder, or several run "
                "folders [A,B]",
            ),
            (
                is_backward and not run.value("synthetic.text"),
                "synthetic.text",
                "required for back-translation; give a file of target-language sentences, one per "
                "line",
            ),
        )
        # A run given with init or objective.teacher cannot initialise the reverse model.
        initial = next(filter(run.value, ("init", "objective.teacher")), None)
        if is_backward and initial and not model:
            yield run.error(
                initial,
                "init can initialise only the final model, not the reverse model; also set "
                "synthetic.model to a reverse model",
            )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the keys that have no effect with the chosen `synthetic.search` and
        `synthetic.direction`, each with the reason.
        """
        search = run.value("synthetic.search")
        direction = run.value("synthetic.direction")
        return idle_keys(
            (
                search != "beam",
                f"needs synthetic.search=beam, got synthetic.search={search}",
                "synthetic.width",
            ),
            (
                search != "sample",
                f"needs synthetic.search=sample, got synthetic.search={search}",
                "synthetic.top_k",
            ),
            (direction != "backward", "needs synthetic.direction=backward", "synthetic.tag"),
            (direction != "both", "needs synthetic.direction=both", "synthetic.models"),
            (
                bool(run.value("synthetic.model")),
                "trains no models, because synthetic.model gives trained models",
                "synthetic.models",
            ),
        )
