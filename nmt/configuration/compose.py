"""Makes one plain configuration from conf/ and the command line, with Hydra's grammar and defaults
lists.

The rule:

1. A data file only describes the data. An experiment is a complete recipe: choices of groups,
   values for their keys.
2. A group or key given on the command line always wins. If it replaces a choice of the recipe, the
   recipe's values for that group are dropped too, and the group is as its own file says. `sizes`
   belong to no choice: they stay as in the recipe.
3. If nothing is chosen, the experiment named in conf/train.yaml is used. If other data is chosen,
   but no experiment, no recipe is used.
"""

import copy
import functools
import inspect
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nmt.configuration.faults import ConfigError, ConfigErrors, not_a_choice, refuse, unknown
from nmt.foundation.errors import UserError
from nmt.storage.upgrade import with_renamed_targets

log = logging.getLogger(__name__)
_package = Path(__file__).resolve().parent.parent
CONF = str(_package / "conf" if (_package / "conf").is_dir() else _package.parent / "conf")
"""Folder of the YAML files: inside the package when installed, beside it in a checkout."""

RECIPE = "experiment"
"""The group whose choices are recipes."""


@dataclass
class Typed:
    """The parts of a command line.

    choices: the choice of each group that was typed.
    values: Hydra's overrides of keys, in their order.
    errors: what can be seen without the whole configuration.
    """

    choices: dict[str, Any] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)
    errors: list[ConfigError] = field(default_factory=list)


def compose(command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of one run as plain containers."""
    return resolve(compose_unresolved(command, overrides))


def compose_unresolved(command: str, overrides: Sequence[str]) -> Any:
    """The configuration of one run as an OmegaConf object with unresolved ${references}. Raises
    ConfigErrors for what is wrong with the overrides.
    """
    config, errors = compose_partly(command, overrides)
    refuse(errors)
    return config


def compose_partly(command: str, overrides: Sequence[str]) -> tuple[Any, list[ConfigError]]:
    """The configuration of those overrides that fit, unresolved, and the errors of the others."""
    typed = _read(command, overrides)
    try:
        config, _ = _by_the_rule(command, typed.choices)
    except ConfigErrors as error:
        raise ConfigErrors([*typed.errors, *error.faults]) from error
    return config, typed.errors + apply(config, typed.values, groups_of(command))


def choices_of(command: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    """The choice of each group in the configuration of one run."""
    return _by_the_rule(command, _read(command, overrides).choices)[1]


def apply(config: Any, overrides: Sequence[Any], groups: Collection[str] = ()) -> list[ConfigError]:
    """Sets the keys of the overrides in a configuration; returns an error for each key that it
    does not have. `groups`: more names to suggest at the top level.
    """
    from hydra.core.override_parser.types import OverrideType
    from omegaconf import OmegaConf

    errors = []
    plain: Any = OmegaConf.to_container(config, resolve=False)
    known = _keys(plain)
    for override in overrides:
        key = override.key_or_group
        group = key.rpartition(".")[0]
        needed = key if override.type is OverrideType.CHANGE else group
        if needed and needed not in known:
            errors.append(_unknown(key, known, groups))
        elif override.type is OverrideType.DEL:
            (OmegaConf.select(config, group) if group else config).pop(key.rpartition(".")[2], None)
        else:
            OmegaConf.update(config, key, override.value(), merge=False, force_add=True)
    return errors


def _keys(node: Mapping[Any, Any], path: str = "") -> dict[str, bool]:
    """All whole keys below a node, and whether each holds further keys."""
    keys = {}
    for name, value in node.items():
        keys[f"{path}{name}"] = isinstance(value, Mapping)
        if isinstance(value, Mapping):
            keys |= _keys(value, f"{path}{name}.")
    return keys


def _unknown(key: str, known: Mapping[str, bool], groups: Collection[str]) -> ConfigError:
    """The error of a key: names its first part that does not exist, and the keys beside that."""
    parts = itertools.accumulate(key.split("."), "{}.{}".format)
    wrong = next((part for part in parts if part not in known), key)
    beside = wrong.rpartition(".")[0]
    names = {name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == beside}
    values = [name for name, holds_keys in known.items() if not holds_keys]
    return unknown(wrong, (names | ({*groups} if not beside else set())) - {"_target_"}, values)


def parse(overrides: Sequence[str]) -> tuple[list[Any], list[ConfigError]]:
    """Overrides parsed by Hydra's grammar, and an error for each that cannot be parsed."""
    from hydra.errors import HydraException

    parsed, errors = [], []
    for text in overrides:
        # The grammar is slow, so its results are kept, but for functions such as glob(*), whose values may change.
        read = _parsed.__wrapped__ if "(" in text else _parsed
        try:
            parsed += read(text)
        except HydraException:
            key, equals, value = text.partition("=")
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("'", "'\\''")
            remedy = f". Put the value between quotes twice: {key}='\"{quoted}\"'" if equals else ""
            if value.startswith("~/"):  # the shell expands ~ at the beginning of a word only
                remedy = f". Write {key}=$HOME{value[1:]}"
            errors.append(ConfigError(text, f"not of the form key=value{remedy}"))
    return parsed, errors


@functools.cache
def _parsed(text: str) -> list[Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with _sources() as loader:
        return OverridesParser.create(loader).parse_overrides([text])


def variants(overrides: Sequence[str]) -> list[list[str]]:
    """The command lines of all runs of a sweep. Raises ConfigErrors for what is not an override."""
    parsed, errors = parse(overrides)
    refuse(errors)
    alternatives = [
        [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [text]
        for text, override in zip(overrides, parsed, strict=True)
    ]
    return [list(combination) for combination in itertools.product(*alternatives)]


def resolve(config: Any) -> dict[str, Any]:
    """A configuration as plain containers, with current class paths. Raises ConfigErrors if a
    ${reference} in it leads nowhere.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "the configuration"
        raise ConfigErrors([ConfigError(key, first_line(error))]) from error
    current = with_renamed_targets(plain)
    for group, node in plain.items():
        if isinstance(node, dict) and node.get("_target_") != current[group].get("_target_"):
            _tell_renamed(node["_target_"], current[group]["_target_"])
    return current


@functools.cache
def _tell_renamed(old: str, new: str) -> None:
    """Logs once that a YAML of --config-dir has the old path of a class."""
    log.warning("%s is the old name of %s", old, new)


def _read(command: str, overrides: Sequence[str]) -> Typed:
    """The parts of a command line. Settings of Hydra itself are left out: they are no part of the
    configuration.
    """
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
        value = override.value()  # ~experiment and experiment=null: no recipe
        if value not in options(key) and not (value is None and key == RECIPE):
            errors.append(not_a_choice(key, value, options(key)))
        elif typed.choices.setdefault(key, value) != value:
            errors.append(
                ConfigError(key, f"chosen twice, {typed.choices[key]} and {value}; leave one out")
            )
    return typed


@functools.cache
def groups_of(command: str) -> Mapping[str, Any]:
    """The groups of a command and their usual choices, as the defaults list of its file says."""
    text = Path(CONF, f"{command}.yaml").read_text(encoding="utf-8")
    choices: dict[str, Any] = {}
    for entry in yaml.safe_load(text)["defaults"]:
        if isinstance(entry, dict):
            choices |= {key: value for key, value in entry.items() if "/" not in key}
        elif entry != "_self_":  # a command that has the groups of another
            choices |= groups_of(entry)
    return choices


def _by_the_rule(command: str, chosen: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The configuration of these choices (see the top of this file), and the choices of all
    groups.
    """
    recipe = chosen.get(RECIPE, groups_of(command).get(RECIPE))
    if recipe is None:
        return _composed(command, chosen)
    of_recipe = _composed(command, {RECIPE: recipe})[1]
    if RECIPE not in chosen and chosen.get("data", of_recipe["data"]) != of_recipe["data"]:
        return _composed(command, {**chosen, RECIPE: None})
    config, choices = _composed(command, {**chosen, RECIPE: recipe})
    for group, choice in chosen.items():
        if group != RECIPE and choice != of_recipe[group]:
            config[group] = _composed(command, {**chosen, RECIPE: None})[0][group]
    return config, choices


def _composed(command: str, chosen: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The configuration that Hydra composes from some choices (a fresh copy), and the choices of
    all groups.
    """
    config, choices = _cached(command, tuple(sorted(chosen.items())))
    return copy.deepcopy(config), choices


@functools.cache
def _cached(command: str, chosen: tuple[tuple[str, Any], ...]) -> tuple[Any, Mapping[str, Any]]:
    from omegaconf import OmegaConf

    overrides = [f"~{group}" if choice is None else f"{group}={choice}" for group, choice in chosen]
    config = by_hydra(command, overrides)
    OmegaConf.set_struct(config, False)
    OmegaConf.set_readonly(config, False)
    choices = config.pop("hydra").runtime.choices
    return config, {group: choice for group, choice in choices.items() if "/" not in group}


def by_hydra(command: str | None, overrides: Sequence[str]) -> Any:
    """The configuration that Hydra composes, with its own settings. Raises ConfigErrors if it
    cannot.
    """
    from hydra import compose as hydra_compose

    try:
        with _sources():
            return hydra_compose(
                command, overrides=[*overrides, *search_path()], return_hydra_config=True
            )
    except hydra_errors() as error:
        raise ConfigErrors([ConfigError(" ".join(overrides), first_line(error))]) from error


@functools.cache
def options(group: str) -> list[str]:
    """The choices of a group."""
    with _sources() as loader:
        files = {path.stem for folder in _beside for path in Path(folder, group).glob("*.yaml")}
        return sorted({*loader.get_group_options(group), *files})


_beside: list[str] = []


def search_beside(folder: str) -> None:
    """Looks for choices in another folder too (--config-dir). Raises UserError if it is not found."""
    if not Path(folder).is_dir():
        raise UserError(f"--config-dir {folder}: there is no such folder")
    _beside.append(str(Path(folder).resolve()))
    forget()


def forget() -> None:
    """Drops all that was read from the folders of the configuration."""
    for function in (_cached, _parsed, options):
        function.cache_clear()


def config_dirs() -> tuple[str, ...]:
    """Absolute paths of the folders of --config-dir."""
    return tuple(_beside)


def search_path() -> list[str]:
    """Override by which Hydra finds the folders of `search_beside`."""
    return [f"hydra.searchpath=[{','.join(_beside)}]"] if _beside else []


@contextmanager
def _sources() -> Iterator[Any]:
    """Hydra's loader for conf/; also works while Hydra is already running."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(CONF, version_base="1.3"):
            yield GlobalHydra.instance().config_loader()
    finally:
        GlobalHydra.instance().hydra = before


def hydra_main(command: str | None, *packages: str) -> Callable[..., Callable[[], Any]]:
    """Decorator of Hydra for a function of the configuration of a command.

    packages: modules that the configuration may name, such as nmt.*
    """
    import hydra

    options: dict[str, Any] = {"version_base": "1.3"}
    if "execution_whitelist" in inspect.signature(hydra.main).parameters:  # Hydra ≥ 1.4
        options["execution_whitelist"] = packages
    return hydra.main(config_path=CONF, config_name=command, **options)


def hydra_errors() -> tuple[type[Exception], ...]:
    """Exceptions of Hydra for a configuration that it cannot compose."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return (HydraException, OmegaConfBaseException, yaml.YAMLError)


def first_line(error: Exception) -> str:
    """The first line of an error's text; the place in a file that is not YAML."""
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, yaml.MarkedYAMLError) and mark is not None:
        return f"{mark.name}, line {mark.line + 1}: not YAML ({error.problem})"
    return str(error).splitlines()[0]
