"""Recipe for the user's own data (experiment=auto), computed from the training pairs.

Each recipe in `RUNGS` was measured with a different number of pairs. Between two of these numbers,
sizes and similar settings are interpolated, and everything else is taken from the nearer recipe.
Positions between recipes are measured on a logarithmic scale. Little text with many names and
numbers also gets copied pairs.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

AUTO = "auto"
"""Name of the experiment whose settings are computed from the number of pairs."""
RUNGS = {
    1_000: "low_resource_1k",
    3_000: "low_resource_3k",
    10_000: "low_resource_10k",
    29_000: "low_resource_30k",
}
"""Recipes by the number of training pairs with which they were measured."""
UNITS = {
    "sizes.encoder": 16,
    "sizes.decoder": 32,
    "sizes.readout": 16,
    "sizes.vocabulary": 100,
    "model.embedding_size": 16,
    "model.dropout": 0.01,
    "model.readout_dropout": 0.01,
    "batching.sentences": 5,
    "optimizer.lr": 0.0001,
    "schedule.warmup": 10,
    "max_validation": 100,
    "trainer.max_epochs": 1,
    "trainer.validate_every": 1,
}
"""Keys whose values are interpolated between two recipes, with the unit to which they are
rounded."""
MOST_PAIRS = 300_000
"""Maximum number of pairs that are counted; the settings are the same for larger data."""

COPIED_PAIRS = 0.5
"""Value of `copied_pairs` for little text with many names and numbers."""
LEAST_NAMES = 0.1
"""Minimum fraction of the training pairs with a common name or number, for text with many names.

Copied pairs raised BLEU on text with fractions of 0.21 and 0.41, and lowered BLEU with 0 and 0.03.
"""


class TrainingText(NamedTuple):
    """Properties of the training pairs, on which experiment=auto depends.

    pairs: number of pairs before `data.split` and filters, at most about `MOST_PAIRS`; None for
        generated data and data of the Hugging Face Hub, 0 for files that cannot be read
    has_several_sources: whether a pair has several source texts
    has_many_names: whether many pairs contain a name or number on both sides; False for pairs that
        cannot be copied, because they have several sources, factors or alignments
    """

    pairs: int | None
    has_several_sources: bool = False
    has_many_names: bool = False


class Position(NamedTuple):
    """Position of a data set between two recipes, by its number of sentence pairs.

    lower: name of the recipe for fewer pairs
    upper: name of the recipe for more pairs
    share: share of the upper recipe in the interpolated values, from 0 to 1
    """

    lower: str
    upper: str
    share: float

    @property
    def nearer(self) -> str:
        """Name of the recipe, lower or upper, whose number of pairs is nearer (log scale)."""
        return self.upper if self.share > 0.5 else self.lower


def position_of(pairs: int) -> Position:
    """Returns the position of a number of sentence pairs between two recipes in `RUNGS`.

    Numbers below the smallest or above the largest number in `RUNGS` are replaced by this number.
    """
    inside = min(max(pairs, min(RUNGS)), max(RUNGS))
    below, above = next(counts for counts in pairwise(RUNGS) if inside <= counts[1])
    share = math.log(inside / below) / math.log(above / below)
    return Position(RUNGS[below], RUNGS[above], share)


def interpolated(pairs: int, lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the keys in `UNITS` for a number of sentence pairs, by dotted key.

    lower, upper: configurations of the neighbouring recipes as flat mappings from dotted keys
    """
    share = position_of(pairs).share
    values = {}
    for key, unit in UNITS.items():
        ends = lower[key], upper[key]
        if min(ends) > 0:
            value = math.exp((1 - share) * math.log(ends[0]) + share * math.log(ends[1]))
        else:
            value = (1 - share) * ends[0] + share * ends[1]
        rounded = round(value / unit) * unit
        values[key] = round(rounded, 6) if isinstance(unit, float) else rounded
    # With more pairs than in all recipes, the number of updates grows with the square root of the
    # number of pairs.
    most = max(RUNGS)
    if pairs > most:
        values["trainer.max_epochs"] = math.ceil(
            values["trainer.max_epochs"] * math.sqrt(most / pairs)
        )
    return values


def add_copied_pairs(values: dict[str, Any], share: Any) -> dict[str, Any]:
    """Returns the interpolated values of a recipe, changed to add copied pairs without more
    updates.

    values: values of the keys in `UNITS`
    share: copied pairs per training pair; an invalid value changes nothing
    """
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        return values
    epochs = round(values["trainer.max_epochs"] / (1 + share))
    return {**values, "copied_pairs": share, "trainer.max_epochs": epochs}


def read_training_text(data: Mapping[str, Any]) -> TrainingText:
    """Reads the training pairs, and returns their properties.

    data: settings of the data

    Errors are ignored, because loading the data raises them again.
    """
    # imported late, since the imports are slow
    from nmt.components import make
    from nmt.configuration.check import faults_of
    from nmt.data import as_list
    from nmt.data.copied_pairs import share_of_common_names

    try:
        if faults_of("data", data):
            return TrainingText(0)
        source = make({"data": data}, "data")
        stream = source.training_stream() if hasattr(source, "training_stream") else None
        if stream is None:
            return TrainingText(None)
        has_several_sources = len(as_list(data.get("source"))) > 1
        can_copy = not (has_several_sources or data.get("factors") or data.get("alignment"))
        first = next(stream.read(), None) if can_copy else None
        has_many_names = first is not None and share_of_common_names(first) >= LEAST_NAMES
        return TrainingText(stream.count(MOST_PAIRS), has_several_sources, has_many_names)
    except (ValueError, OSError):
        return TrainingText(0)


def log_recipe(pairs: int, recipe: str | None, settings: Sequence[str] = ()) -> None:
    """Logs once whether the computed recipe is used, and how to change this choice.

    pairs: number of training pairs
    recipe: name of the recipe with the nearer number of pairs; None if the recipe is not used
    settings: interpolated settings that are used
    """
    from nmt.foundation.terminal import log_early  # imported late, since rich is slow to import

    count = f"more than {MOST_PAIRS:,}" if pairs > MOST_PAIRS else f"{pairs:,}"
    interpolated_settings = f", with {', '.join(settings)}" if settings else ""
    log_early(
        f"{count} training pairs: using the recipe experiment=auto (that of "
        f"{recipe}{interpolated_settings}); to use no recipe, set experiment=null"
        if recipe
        else f"{count} training pairs: using no recipe, because sizes are set; add "
        "experiment=auto to use the recipe with your sizes, or experiment=null to hide this "
        "message"
    )
