"""Recipes for a first training on own text: experiments by the number of sentence pairs."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
RECIPES = {2_000: "low_resource_1k", 6_000: "low_resource_3k", 20_000: "low_resource_10k"}
"""Experiments by the largest number of pairs that they are for (conf/README.md)."""
LARGEST_RECIPE = "low_resource_30k"


def recipe_for(num_pairs: int) -> str:
    """The experiment for a number of sentence pairs."""
    return next((name for most, name in RECIPES.items() if num_pairs <= most), LARGEST_RECIPE)


def recipe_of_data(data: Mapping[str, Any]) -> str | None:
    """The experiment for the training text of a `data` group, which is logged.

    None for generated data, data of the hub, and data that cannot be read. Errors are not raised,
    because building the data raises them again.
    """
    from nmt.configuration import build  # slow, and other commands do not need it

    most = max(RECIPES)
    try:
        if build.faults_of("data", data):
            return None
        source = build.make({"data": data}, "data")
        stream = source.training_stream() if hasattr(source, "training_stream") else None
        if stream is None:
            return None
        num_pairs = stream.count(most)  # stops soon after the largest limit
    except (UserError, ValueError, OSError):
        return None
    recipe = recipe_for(num_pairs)
    log_recipe(f"more than {most:,}" if num_pairs > most else f"{num_pairs:,}", recipe)
    return recipe


@functools.cache
def log_recipe(num_pairs: str, recipe: str) -> None:
    """Logs the recipe once. It is a warning, because logging is set up after the configuration."""
    log.warning(
        "%s training pairs: experiment=%s applies. Without a recipe: experiment=null",
        num_pairs,
        recipe,
    )
