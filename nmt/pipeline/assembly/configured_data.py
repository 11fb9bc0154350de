"""Data sets and filters that a configuration names."""

import inspect
from functools import partial

from nmt import components
from nmt.data import Splits
from nmt.data.filters import Filters
from nmt.data.store import stored
from nmt.training.task.classification_task import fingerprints as of_classification
from nmt.training.task.translation_task import fingerprints as of_translation


def fingerprints(command: str, config: components.Config) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the SHA-256 digests of a configuration's data sets in two dictionaries by name of the
    set: one for the training set and every validation set, and one for the test set.

    Raises UserError if the data cannot be read.
    """
    if command == "train":
        return of_translation(loaded(config, filters_of(config)))
    return of_classification(components.make(config, "data").labelled())


def filters_of(config: components.Config) -> Filters:
    """Returns the configured filters; they ignore the tags that the data source prepends to source
    lines."""
    tags = config["data"].get("tags") or {}
    return components.make(config, "filters", tags=tuple(tags.values()))


def loaded(config: components.Config, filters: Filters) -> Splits:
    """Loads the parallel data of a configuration; large training data is filtered and stored on
    disk."""
    data = components.make(config, "data")
    # Data sources of plugins may lack the parameter `keep`.
    if "keep" in inspect.signature(data.load).parameters:
        return data.load(partial(stored, where=config.get("store", "auto"), filters=filters))
    return data.load()
