"""Composes configurations from conf/ and the command line with Hydra.

The command line overrides the recipe, and the recipe overrides the defaults in conf/.

- A recipe is a file of the group `experiment`: choices of groups, and values of their keys. A file
of the group `data` sets only keys of this group.
- If the command line replaces a group's choice of the recipe, the recipe's values for this group
are dropped. The group `sizes` is independent of choices and keeps the recipe's values.
- The default recipe is the experiment in conf/train.yaml. If the command line of nmt.train chooses
text files or tables and no experiment, the recipe is experiment=auto, which is computed from the
number of sentence pairs (recipe_by_size.py). Without an experiment on the command line, there is no
recipe for other data, or with `sizes` or `init` on the command line.
"""

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from nmt.configuration.overrides import apply, parse
from nmt.configuration.recipe_by_size import (
    AUTO,
    COPIED_PAIRS,
    RUNGS,
    TrainingText,
    add_copied_pairs,
    interpolated,
    log_recipe,
    position_of,
    read_training_text,
)
from nmt.configuration.yaml_files import CONF, by_hydra, folders, groups_of, options, reason
from nmt.foundation.configurations import flat, value_of
from nmt.foundation.part_limits import ConfigError, ConfigErrors, broken, refuse, shown
from nmt.foundation.suggestions import not_a_choice
from nmt.storage.upgrade import with_renamed_targets

RECIPE = "experiment"
"""Name of the configuration group whose choices are recipes."""


@dataclass
class Typed:
    """Parsed configuration overrides from a command line.

    choices: chosen file of each group, by group name
    text: properties of the training pairs, on which experiment=auto depends
    values: Hydra overrides of single keys, in order
    errors: errors that do not depend on the configuration
    """

    choices: dict[str, Any] = field(default_factory=dict)
    text: TrainingText = field(default=TrainingText(None))
    values: list[Any] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)


def compose(command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the configuration of one run as nested dictionaries and lists.

    Raises ConfigErrors if an override is invalid.
    """
    config, errors = compose_partly(command, overrides)
    refuse(errors)
    return resolve(config)


def compose_partly(
    command: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """Returns the configuration that the valid overrides give, and the errors of invalid overrides.

    ${references} in the configuration are not resolved.
    """
    typed = _read(command, overrides)
    config, _ = _by_precedence(command, typed)
    return config, typed.errors + apply(config, typed.values)


def choices_of(command: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    """Returns the chosen file of each group for one run, by group name."""
    return _by_precedence(command, _read(command, overrides))[1]


def resolve(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a configuration as nested dictionaries and lists.

    References such as ${cell} are replaced by their values, and the paths of renamed classes by the
    current paths.

    Raises ConfigErrors if a ${reference} cannot be resolved.
    """
    try:
        plain: Any = OmegaConf.to_container(OmegaConf.create(config), resolve=True)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "the configuration"
        problem = reason(error)
        if isinstance(error, InterpolationKeyError):
            problem += "; the choice of its group lacks this key, or misspells it"
        raise ConfigErrors([ConfigError(key, problem)]) from error
    return with_renamed_targets(plain)


def _read(command: str, overrides: Sequence[str]) -> Typed:
    """Parses a command line into choices and values; Hydra's own settings are ignored."""
    parsed, errors = parse(overrides)
    typed = Typed(errors=errors)
    groups = groups_of(command)
    for override in parsed:
        key = override.key_or_group
        if key in groups:
            errors += _choose(typed.choices, key, override.value(), groups)
        elif not key.startswith("hydra"):
            typed.values.append(override)
    for group, default in groups.items():
        errors += _hidden(group, typed.choices.get(group, default))
    if RECIPE in groups and not errors:
        _choose_auto(command, typed)
    return typed


def _choose(
    choices: dict[str, Any], group: str, value: Any, groups: Mapping[str, Any]
) -> list[ConfigError]:
    """Adds a choice; returns an error if it is unknown or the group has another choice.

    choices: choices of the command line, by group name
    group: name of the configuration group, such as decoder
    value: the choice; None for ~experiment and experiment=null, which disable the recipe, and for
        other groups without a default choice
    groups: default choices of all groups of the command
    """
    may_be_none = group == RECIPE or groups[group] is None
    if value not in options(group) and not (value is None and may_be_none):
        elsewhere = [name for name in groups if value in options(name)]
        return [not_a_choice(group, value, options(group), elsewhere, folders())]
    if choices.setdefault(group, value) != value:
        problem = f"set twice ({shown(choices[group])} and {shown(value)}); leave one out"
        return [ConfigError(group, problem)]
    return []


def _hidden(group: str, choice: Any) -> Iterator[ConfigError]:
    """Yields an error if a further folder has a file with the name of a choice of nmt."""
    if choice not in options(group):
        return
    file, *others = [Path(folder, group, f"{choice}.yaml") for folder in (CONF, *folders())]
    for path in filter(Path.is_file, others if file.is_file() else ()):
        problem = f"is a choice of nmt, so {path} has no effect; give this file another name"
        yield ConfigError(group, problem, shown(choice))


def _choose_auto(command: str, typed: Typed) -> None:
    """Chooses experiment=auto if data files, but no experiment, are given.

    Counts the training pairs for experiment=auto; adds an error if they cannot be counted.
    """
    is_asked = typed.choices.get(RECIPE) == AUTO
    keys = {override.key_or_group.partition(".")[0] for override in typed.values}
    inits = [override.value() for override in typed.values if override.key_or_group == "init"]
    is_possible = "data" in typed.choices and not any(inits[-1:])
    if not is_asked and (RECIPE in typed.choices or not is_possible):
        return
    # the data settings, composed without a recipe
    config, _ = _composed(command, {**typed.choices, RECIPE: None})
    apply(config, [value for value in typed.values if value.key_or_group.startswith("data.")])
    settings = resolve(config)
    grids = value_of(settings, "sweep.grids") or ()
    # The grids of a sweep may choose the recipe.
    if not is_asked and any(f"{RECIPE}=" in str(grid) for grid in grids):
        return
    typed.text = read_training_text(settings["data"])
    pairs = typed.text.pairs
    if pairs is None and is_asked:
        names = ", ".join(RUNGS.values())
        problem = f"auto counts the training pairs of local files; choose one of {names}"
        typed.errors.append(ConfigError(RECIPE, problem))
    elif is_asked or (pairs and "sizes" not in keys):
        typed.choices[RECIPE] = AUTO
    elif pairs:
        log_recipe(pairs, None)


def _by_precedence(command: str, typed: Typed) -> tuple[Any, Mapping[str, Any]]:
    """Composes a configuration; choices on the command line override those of the experiment.

    command: name of the command, such as train
    typed: choices on the command line

    Returns the configuration, and the choice of every group.
    """
    chosen = typed.choices
    recipe = chosen.get(RECIPE, groups_of(command).get(RECIPE))
    if recipe is None:
        return _composed(command, chosen)
    config, choices = _of_recipe(command, recipe, typed)
    first_line = f"{recipe}.yaml must begin with the line # @package _global_"
    refuse(broken((RECIPE in config, RECIPE, first_line, recipe)))
    # The default recipe applies only to the default data.
    if RECIPE not in chosen and chosen.get("data", choices["data"]) != choices["data"]:
        return _composed(command, {**chosen, RECIPE: None})
    groups = [g for g, choice in chosen.items() if g != RECIPE and choice != choices[g]]
    if groups:
        # A choice that replaces a choice of the recipe drops the recipe's values for the group.
        without_recipe, _ = _composed(command, {**chosen, RECIPE: None})
        config.update({group: without_recipe[group] for group in groups})
    return config, {**choices, **chosen}


def _of_recipe(command: str, recipe: str, typed: Typed) -> tuple[Any, Mapping[str, Any]]:
    """Composes a recipe, and returns the configuration with the choice of every group.

    typed: choices on the command line, with the properties of the data for experiment=auto
    """
    pairs = typed.text.pairs
    if recipe != AUTO or not pairs:
        return _composed(command, {RECIPE: recipe})
    position = position_of(pairs)
    lower, _ = _composed(command, {RECIPE: position.lower})
    upper, _ = _composed(command, {RECIPE: position.upper})
    config, choices = _composed(command, {RECIPE: position.nearer})
    values = interpolated(pairs, flat(lower), flat(upper))
    # The chosen network or the data may not support parts of the recipe's network.
    if typed.choices.get("attention") == "none":
        config["model"] |= {"lexicon": None, "lexical": False}  # which need attention
    elif typed.text.has_several_sources:  # a lexicon has entries for one source text
        config["model"] |= {"lexicon": None}
    typed_values = {override.key_or_group: override.value() for override in typed.values}
    default, default_choices = _composed(command, {RECIPE: None})
    # A typed key that only the default objective has chooses this objective.
    only_default = default["objective"].keys() - config["objective"].keys()
    if "objective" not in typed.choices and any(
        f"objective.{key}" in typed_values for key in only_default
    ):
        config["objective"] = default["objective"]
        choices = {**choices, "objective": default_choices["objective"]}
    # filters.drop_identical would drop the copied pairs.
    can_copy = typed.text.has_many_names and not typed_values.get("filters.drop_identical")
    if can_copy and position.nearer != RUNGS[max(RUNGS)]:
        values = add_copied_pairs(values, typed_values.get("copied_pairs", COPIED_PAIRS))
    apply(config, parse([f"{key}={value}" for key, value in values.items()])[0])
    # Network and sizes of the model that `init` names are kept.
    unused = {
        *typed_values,
        *typed.choices,
        *(("sizes", "model") if typed_values.get("init") else ()),
    }
    used = {key for key in values if unused.isdisjoint((key, key.partition(".")[0]))}
    log_recipe(pairs, position.nearer, [f"{key}={values[key]:g}" for key in values if key in used])
    return config, {**choices, RECIPE: AUTO}


def _composed(command: str, chosen: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Composes a configuration from chosen groups with Hydra, and returns a copy with the choice of
    every group."""
    # A copy, since the caller sets keys in place.
    return copy.deepcopy(_cached(command, tuple(sorted(chosen.items())), folders()))


@functools.cache
def _cached(
    command: str, chosen: tuple[tuple[str, Any], ...], _: tuple[str, ...]
) -> tuple[Any, Mapping[str, Any]]:
    overrides = [f"~{group}" if choice is None else f"{group}={choice}" for group, choice in chosen]
    composed = by_hydra(command, overrides)
    choices = composed.hydra.runtime.choices  # choices, including Hydra's own groups
    config: Any = OmegaConf.to_container(composed)
    del config["hydra"]
    return config, {group: choice for group, choice in choices.items() if "/" not in group}
