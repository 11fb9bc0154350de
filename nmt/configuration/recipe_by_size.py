"""Selects a recipe (experiment) for the user's data by the number of sentence pairs."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
RECIPES = {2_000: "low_resource_1k", 6_000: "low_resource_3k", 20_000: "low_resource_10k"}
"""Maps the maximum number of sentence pairs to the name of an experiment."""
LARGEST_RECIPE = "low_resource_30k"


def recipe_for(num_pairs: int) -> str:
    """Returns the name of the experiment recommended for a number of sentence pairs."""
    return next((name for most, name in RECIPES.items() if num_pairs <= most), LARGEST_RECIPE)


def recipe_of_data(data: Mapping[str, Any], *, is_used: bool = True) -> str | None:
    """Returns and logs the name of the experiment recommended for some training data.

    data: settings of the data
    is_used: whether the training uses the recommended experiment, for the log

    Returns None for generated data, data of the Hugging Face Hub, and data that cannot be read.
    Errors are ignored, because loading the data raises them again.
    """
    # imported late, since the imports are slow
    from nmt.components import make
    from nmt.configuration.check import faults_of

    most = max(RECIPES)
    try:
        if faults_of("data", data):
            return None
        source = make({"data": data}, "data")
        stream = source.training_stream() if hasattr(source, "training_stream") else None
        if stream is None:
            return None
        num_pairs = stream.count(most)  # stops soon after the largest limit
    except (UserError, ValueError, OSError):
        return None
    recipe = recipe_for(num_pairs)
    count = f"more than {most:,}" if num_pairs > most else f"{num_pairs:,}"
    log_recipe(count, recipe, is_used=is_used)
    return recipe


@functools.cache
def log_recipe(num_pairs: str, recipe: str, *, is_used: bool) -> None:
    """Logs once whether the recommended recipe is used, and how to change this choice.

    Before logging is set up, the message is a warning, because Python then prints only warnings.
    """
    log.log(
        logging.INFO if log.hasHandlers() else logging.WARNING,
        "%s training pairs: using the recipe experiment=%s; to use no recipe, set experiment=null"
        if is_used
        else "%s training pairs: using no recipe, because sizes are set; add experiment=%s to use "
        "the recipe with your sizes, or experiment=null to hide this message",
        num_pairs,
        recipe,
    )
