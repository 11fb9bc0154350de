"""Composes configurations from conf/ and the command line with Hydra.

Precedence:

1. A YAML file of the group `data` sets only keys of this group. An experiment is a complete recipe:
choices of groups, and values of their keys.
2. Groups and keys on the command line override everything else. If a group on the command line
replaces a choice of the recipe, the recipe's values for this group are dropped. The group `sizes`
is independent of choices and keeps the recipe's values.
3. The default recipe is the experiment in conf/train.yaml. If the command line of nmt.train chooses
text files or tables and no experiment, the recipe is experiment=auto, which is computed from the
number of sentence pairs (recipe_by_size.py). There is no recipe for other data, or with `sizes` or
`init` on the command line.
"""

import copy
import functools
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.configuration.faults import not_a_choice
from nmt.configuration.recipe_by_size import (
    AUTO,
    RUNGS,
    count_pairs,
    interpolated,
    log_recipe,
    position_of,
)
from nmt.foundation import plugins
from nmt.foundation.configurations import flat
from nmt.foundation.errors import PATH, UsageError, first_line, in_list
from nmt.foundation.part_limits import ConfigError, ConfigErrors, refuse
from nmt.storage.upgrade import with_renamed_targets

_package = Path(__file__).resolve().parent.parent
CONF = str(_package / "conf" if (_package / "conf").is_dir() else _package.parent / "conf")
"""Folder of the YAML files, inside the package if installed, else beside the package in a
checkout."""

RECIPE = "experiment"
"""Name of the configuration group whose choices are recipes."""
HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)
"""Exception types that Hydra raises for invalid configurations."""


@dataclass
class Typed:
    """Parsed configuration overrides from a command line.

    choices: chosen file of each group, by group name
    pairs: number of training pairs, which determines experiment=auto; None for another recipe
    values: Hydra overrides of single keys, in order
    errors: errors that do not depend on the configuration
    """

    choices: dict[str, Any] = field(default_factory=dict)
    pairs: int | None = None
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
    """Returns the configuration of the valid overrides, and the errors of all invalid overrides.

    ${references} in the configuration are not resolved.
    """
    typed = _read(command, overrides)
    config, _ = _by_precedence(command, typed)
    return config, typed.errors + apply(config, typed.values)


def choices_of(command: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    """Returns the chosen file of each group for one run, by group name."""
    return _by_precedence(command, _read(command, overrides))[1]


def apply(config: MutableMapping[str, Any], overrides: Sequence[Any]) -> list[ConfigError]:
    """Sets keys of a configuration in place, and returns an error for each key whose parent is a
    value instead of a group, such as seed.x=1.

    Unknown keys are set too, and reported when the configuration is checked (check.py).

    config: configuration as nested mappings
    overrides: Hydra overrides
    """
    errors = []
    for override in overrides:
        key = override.key_or_group
        [*groups, name] = key.split(".")
        node: Any = config
        for group in groups:
            node = node.setdefault(group, {}) if isinstance(node, MutableMapping) else None
        if not isinstance(node, MutableMapping):
            errors.append(ConfigError(key, f"no such key; {'.'.join(groups)} has no keys"))
        elif override.type is OverrideType.DEL:
            node.pop(name, None)
        else:
            node[name] = override.value()
    return errors


def parse(overrides: Sequence[str]) -> tuple[list[Any], list[ConfigError]]:
    """Parses overrides with Hydra's grammar, and returns an error for each invalid override."""
    parsed = []
    errors = []
    for text in overrides:
        # A folder or file whose name begins with a digit is text.
        text = PATH.sub(r'\1"\2"', text)
        # Hydra's parser is slow, so results are cached, except functions such as glob(*).
        read = _parsed.__wrapped__ if "(" in text else _parsed
        try:
            parsed += read(text)
        except HydraException:
            problem = f"must have the form key=value{_remedy(text)}"
            errors.append(ConfigError(text, problem))
    return parsed, errors


def _remedy(text: str) -> str:
    """Returns the advice for an override that Hydra's grammar does not contain."""
    key, equals, value = text.partition("=")
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("'", "'\\''")
    # Unlike Path.is_file, this function returns False for names that are too long.
    is_file = os.path.isfile(text)  # noqa: PTH113
    remedies = (
        # The shell expands ~ only at the beginning of a word.
        (value.startswith("~/"), f". Write {key}=$HOME{value[1:]}"),
        (
            text.endswith((".yaml", ".yml")),
            f"; to train from the config.yaml of a run, write --from {text}",
        ),
        (not equals and is_file, f"; a file needs its key, such as input={text}"),
        (
            re.match(r"[^\s\[\"']+\s+[\w.]+=", value),
            ". Give each setting as a word of its own, in Python as a string of its own",
        ),
        (
            value.startswith("["),
            f". Put each item in quotes: {key}={shlex.quote(in_list(value))}",
        ),
        (equals, f". Put the value in quotes twice: {key}='\"{quoted}\"'"),
    )
    return next((advice for applies, advice in remedies if applies), "")


@functools.cache
def _parsed(text: str) -> list[Any]:
    with _sources() as loader:
        return OverridesParser.create(loader).parse_overrides([text])


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
        raise ConfigErrors([ConfigError(key, reason(error))]) from error
    return with_renamed_targets(plain)


def _read(command: str, overrides: Sequence[str]) -> Typed:
    """Parses a command line into choices and values; Hydra's own settings are ignored."""
    parsed, errors = parse(overrides)
    typed = Typed(errors=errors)
    groups = groups_of(command)
    for override in parsed:
        key = override.key_or_group
        if key.startswith("hydra"):
            continue
        if key not in groups:
            typed.values.append(override)
            continue
        value = override.value()  # ~experiment and experiment=null disable the recipe
        if value not in options(key) and not (value is None and key == RECIPE):
            elsewhere = [group for group in groups if value in options(group)]
            errors.append(not_a_choice(key, value, options(key), elsewhere, folders()))
        elif typed.choices.setdefault(key, value) != value:
            errors.append(
                ConfigError(
                    key,
                    f"set twice ({typed.choices[key]} and {value}); leave one out",
                )
            )
    if RECIPE in groups and not errors:
        _choose_auto(command, typed)
    return typed


def _choose_auto(command: str, typed: Typed) -> None:
    """Chooses experiment=auto if data files are given and no experiment, and counts the training
    pairs for experiment=auto. Adds an error if the pairs cannot be counted.
    """
    is_asked = typed.choices.get(RECIPE) == AUTO
    keys = {override.key_or_group.partition(".")[0] for override in typed.values}
    is_possible = "data" in typed.choices and "init" not in keys
    if not is_asked and (RECIPE in typed.choices or not is_possible):
        return
    # the data settings, composed without a recipe
    config, _ = _composed(command, {**typed.choices, RECIPE: None})
    apply(config, [value for value in typed.values if value.key_or_group.startswith("data.")])
    settings = resolve(config)
    grids = (settings.get("sweep") or {}).get("grids") or ()
    # The grids of a sweep may choose the recipe.
    if not is_asked and any(f"{RECIPE}=" in str(grid) for grid in grids):
        return
    typed.pairs = count_pairs(settings["data"])
    if typed.pairs is None and is_asked:
        names = ", ".join(RUNGS.values())
        problem = f"auto counts the training pairs of local files; choose one of {names}"
        typed.errors.append(ConfigError(RECIPE, problem))
    elif is_asked or (typed.pairs and "sizes" not in keys):
        typed.choices[RECIPE] = AUTO
    elif typed.pairs:
        log_recipe(typed.pairs, None)


@functools.cache
def groups_of(command: str) -> Mapping[str, Any]:
    """Returns the groups of a command with their default choices, from the defaults list of its
    YAML file."""
    text = Path(CONF, f"{command}.yaml").read_text(encoding="utf-8")
    choices: dict[str, Any] = {}
    for entry in yaml.safe_load(text)["defaults"]:
        if isinstance(entry, dict):
            choices |= {key: value for key, value in entry.items() if "/" not in key}
        elif entry != "_self_":  # the command includes the groups of another command
            choices |= groups_of(entry)
    return choices


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
    config, choices = _of_recipe(command, recipe, typed.pairs)
    # The default recipe applies only to the default data.
    if RECIPE not in chosen and chosen.get("data", choices["data"]) != choices["data"]:
        return _composed(command, {**chosen, RECIPE: None})
    groups = [g for g, choice in chosen.items() if g != RECIPE and choice != choices[g]]
    if groups:
        # A choice that replaces a choice of the recipe drops the recipe's values for the group.
        without_recipe, _ = _composed(command, {**chosen, RECIPE: None})
        config.update({group: without_recipe[group] for group in groups})
    return config, {**choices, **chosen}


def _of_recipe(command: str, recipe: str, pairs: int | None) -> tuple[Any, Mapping[str, Any]]:
    """Composes a recipe, and returns the configuration with the choice of every group.

    pairs: number of training pairs, for experiment=auto
    """
    if recipe != AUTO or not pairs:
        return _composed(command, {RECIPE: recipe})
    position = position_of(pairs)
    lower, _ = _composed(command, {RECIPE: position.lower})
    upper, _ = _composed(command, {RECIPE: position.upper})
    config, choices = _composed(command, {RECIPE: position.nearer})
    values = interpolated(pairs, flat(lower), flat(upper))
    apply(config, parse([f"{key}={value}" for key, value in values.items()])[0])
    log_recipe(pairs, [position.nearer, *(f"{key}={value:g}" for key, value in values.items())])
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


def by_hydra(command: str | None, overrides: Sequence[str]) -> Any:
    """Returns the configuration composed by Hydra, including Hydra's own settings.

    command: name of the YAML file in conf/; None composes only Hydra's settings
    overrides: choices of groups

    Raises ConfigErrors if Hydra raises an error.
    """
    try:
        with _sources():
            return hydra.compose(
                command, overrides=[*overrides, *search_path()], return_hydra_config=True
            )
    except HYDRA_ERRORS as error:
        raise ConfigErrors([ConfigError(" ".join(overrides), reason(error))]) from error


def options(group: str) -> list[str]:
    """Returns the names of all choices in a configuration group."""
    return _options(group, folders())


@functools.cache
def _options(group: str, folders: tuple[str, ...]) -> list[str]:
    with _sources() as loader:
        files = {path.stem for folder in folders for path in Path(folder, group).glob("*.yaml")}
        return sorted({*loader.get_group_options(group), *files})


added_folders: list[str] = []
"""Folders given with --config-dir, which contain additional YAML choices."""


def search_beside(folder: str) -> None:
    """Adds a folder of YAML choices (--config-dir); raises UserError if the folder is not found."""
    if not Path(folder).is_dir():
        raise UsageError(f"--config-dir {folder}: no such folder")
    added_folders.append(str(Path(folder).resolve()))


def folders() -> tuple[str, ...]:
    """Returns the folders of additional YAML choices, from --config-dir and from plugins."""
    return (*added_folders, *plugins.folders())


def search_path() -> list[str]:
    """Returns the Hydra override that adds the folders of additional choices."""
    return [f"hydra.searchpath=[{','.join(folders())}]"] if folders() else []


@contextmanager
def _sources() -> Iterator[Any]:
    """Yields Hydra's configuration loader for conf/ in a `with` block, even while Hydra runs."""
    # Hydra is a singleton, which a launcher may already have initialised.
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(CONF, version_base="1.3"):
            yield GlobalHydra.instance().config_loader()
    finally:
        GlobalHydra.instance().hydra = before


def hydra_main(command: str | None, *packages: str) -> Callable[..., Callable[[], Any]]:
    """Returns Hydra's decorator for a function that receives a command's configuration.

    command: name of the YAML file in conf/
    packages: modules that the configuration may name, such as nmt.*
    """
    whitelist = {"execution_whitelist": packages}  # modules that _target_ may name
    # The parameter exists from Hydra 1.4 on.
    is_known = "execution_whitelist" in inspect.signature(hydra.main).parameters
    return hydra.main(
        version_base="1.3", config_path=CONF, config_name=command, **(whitelist if is_known else {})
    )


def reason(error: Exception) -> str:
    """Returns the first line of an error message, or the file and line of a YAML error."""
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, yaml.MarkedYAMLError) and mark is not None:
        return f"{mark.name}, line {mark.line + 1}: invalid YAML ({error.problem})"
    return first_line(error)
