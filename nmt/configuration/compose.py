"""Makes one plain configuration from conf/ and the command line, with Hydra's grammar and defaults lists.

The rule:

1. A data file only describes the data. An experiment is a complete recipe: choices of groups, values for their keys.
2. A group or key given on the command line always wins. If it replaces a choice of the recipe, the recipe's values for
   that group are dropped too, and the group is as its own file says. `sizes` belong to no choice: they stay as in the
   recipe.
3. If nothing is chosen, the experiment named in conf/train.yaml is used. If other data is chosen, but no experiment, no
   recipe is used.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.configuration.faults import ConfigError, ConfigErrors, not_a_choice, unknown
from nmt.foundation.errors import UserError
from nmt.storage.upgrade import with_renamed_targets

_package = Path(__file__).resolve().parent.parent
CONF = str(_package / "conf" if (_package / "conf").is_dir() else _package.parent / "conf")
"""conf/ lies inside the package when installed, beside it in a checkout."""

RECIPE = "experiment"
"""The group whose choices are recipes."""


@dataclass(frozen=True)
class Typed:
    """The parts of a command line: choices of groups, and values of keys (Hydra's overrides) in their order."""

    choices: Mapping[str, Any]
    values: tuple[Any, ...]


class PartialConfig(ConfigErrors):
    """Part of the command line does not fit; `rest` is the configuration without it, which may have more faults."""

    def __init__(self, faults: Sequence[ConfigError], rest: Any) -> None:
        super().__init__(faults)
        self.rest = rest


def compose(command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of one run as plain containers."""
    return resolve(compose_unresolved(command, overrides))


def compose_unresolved(command: str, overrides: Sequence[str]) -> Any:
    """The same as an OmegaConf object with unresolved ${references}. Raises PartialConfig for unknown choices or keys."""
    typed, found = _read(command, overrides)
    try:
        config, _ = _by_the_rule(
            command, {g: c for g, c in typed.choices.items() if not _wrong_choice(g, c)}
        )
    except _unusable() as error:
        raise ConfigErrors([*found, ConfigError("", str(error).splitlines()[0])]) from error
    found += apply(config, typed.values, _choices(command))
    if found:
        raise PartialConfig(found, config)
    return config


def choices_of(command: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    """The choice of each group in the configuration of one run."""
    return _by_the_rule(command, _read(command, overrides)[0].choices)[1]


def apply(config: Any, overrides: Sequence[Any], groups: Collection[str] = ()) -> list[ConfigError]:
    """Sets the keys of the overrides in a configuration; returns a fault for each key that it does not have. `groups`:
    more names to suggest in faults at the top level."""
    from hydra.core.override_parser.types import OverrideType
    from omegaconf import OmegaConf

    found = []
    for override in overrides:
        *parents, last = override.key_or_group.split(".")
        node, above = config, list[str]()
        while (
            parents and OmegaConf.is_dict(node) and parents[0] in list(node)
        ):  # `in node` misses ???
            above.append(parents.pop(0))
            node = node._get_node(above[-1])
        key = parents[0] if parents else last
        if (
            parents
            or not OmegaConf.is_dict(node)
            or (last not in list(node) and override.type is OverrideType.CHANGE)
        ):
            found.append(unknown(".".join([*above, key]), _keys(node, () if above else groups)))
        elif override.type is OverrideType.DEL:
            node.pop(last, None)
        else:
            OmegaConf.update(
                config, override.key_or_group, override.value(), merge=False, force_add=True
            )
    return found


_PARSED: dict[str, list[Any]] = {}


def parse(overrides: Sequence[str]) -> tuple[list[Any], list[ConfigError]]:
    """Overrides parsed by Hydra's grammar, and a fault for each that cannot be parsed."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parsed, found = [], []
    with _sources() as loader:
        for text in overrides:
            try:
                if (
                    text not in _PARSED
                ):  # the grammar is slow, and what was typed is looked at several times
                    made = OverridesParser.create(loader).parse_overrides([text])
                    _PARSED.update(
                        {} if "(" in text else {text: made}
                    )  # what choices glob(*) means may change
                else:
                    made = _PARSED[text]
                parsed += made
            except HydraException:
                key, equals, value = text.partition("=")
                quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("'", "'\\''")
                quotes = (
                    f". Put the value between quotes twice: {key}='\"{quoted}\"'" if equals else ""
                )
                found.append(ConfigError(text, f"not of the form key=value{quotes}"))
    return parsed, found


def variants(overrides: Sequence[str]) -> list[list[str]]:
    """The command lines of all runs of a sweep. Raises ConfigErrors for what is not an override."""
    parsed, found = parse(overrides)
    if found:
        raise ConfigErrors(found)
    each = []
    for text, override in zip(overrides, parsed, strict=True):
        if override.is_sweep_override():
            each.append(
                [
                    f"{override.get_key_element()}={value}"
                    for value in override.sweep_string_iterator()
                ]
            )
        else:
            each.append([text])
    return [list(one) for one in itertools.product(*each)]


def resolve(config: Any) -> dict[str, Any]:
    """A configuration as plain containers. Raises ConfigErrors if a ${reference} in it leads nowhere."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "the configuration"
        raise ConfigErrors([ConfigError(key, str(error).splitlines()[0])]) from error
    return with_renamed_targets(plain)


def _read(command: str, overrides: Sequence[str]) -> tuple[Typed, list[ConfigError]]:
    """What was typed, and the faults that can be seen without the whole configuration."""
    parsed, found = parse(overrides)
    groups = _choices(command)
    choices: dict[str, Any] = {}
    values = []
    for override in parsed:
        key = override.key_or_group
        if key.startswith("hydra"):
            continue  # settings of Hydra itself: not part of the configuration
        if key not in groups:
            values.append(override)
            continue
        value = override.value()  # ~experiment and experiment=null: no recipe
        wrong = _wrong_choice(key, value)
        if wrong is not None:
            found.append(wrong)
        elif choices.setdefault(key, value) != value:
            found.append(
                ConfigError(key, f"chosen twice, {choices[key]} and {value}; leave one out")
            )
    return Typed(choices, tuple(values)), found


def _wrong_choice(group: str, value: Any) -> ConfigError | None:
    there = options(group)
    return (
        None
        if value in there or (value is None and group == RECIPE)
        else not_a_choice(group, value, there)
    )


def _by_the_rule(command: str, chosen: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The configuration of these choices (see the top of this file), and the choices of all groups."""
    usual = _choices(command)
    recipe = chosen.get(RECIPE, usual.get(RECIPE))
    if recipe is None:
        return _composed(command, chosen)
    of_recipe = _composed(command, {RECIPE: recipe})[1]
    if RECIPE not in chosen and chosen.get("data", of_recipe["data"]) != of_recipe["data"]:
        return _composed(command, {**chosen, RECIPE: None})
    config, choices = _composed(command, {**chosen, RECIPE: recipe})
    replaced = [
        group for group, choice in chosen.items() if group != RECIPE and choice != of_recipe[group]
    ]
    if replaced:
        plain = _composed(command, {**chosen, RECIPE: None})[0]
        for group in replaced:
            config[group] = plain[group]
    return config, choices


def _composed(command: str, chosen: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The configuration that Hydra composes from some choices (a fresh copy), and the choices of all groups."""
    config, choices = _cached(command, tuple(sorted(chosen.items())))
    return copy.deepcopy(config), choices


@functools.cache
def _cached(command: str, chosen: tuple[tuple[str, Any], ...]) -> tuple[Any, Mapping[str, Any]]:
    from hydra import compose as compose_by_hydra
    from omegaconf import OmegaConf

    with _sources():
        overrides = [
            f"~{group}" if choice is None else f"{group}={choice}" for group, choice in chosen
        ]
        config = compose_by_hydra(
            command, overrides=[*overrides, *search_path()], return_hydra_config=True
        )
    OmegaConf.set_struct(config, False)
    OmegaConf.set_readonly(config, False)
    choices = {
        group: choice for group, choice in config.hydra.runtime.choices.items() if "/" not in group
    }
    config.pop("hydra")
    return config, choices


def _choices(command: str) -> Mapping[str, Any]:
    """The groups of a command and their usual choices."""
    return _cached(command, ())[1]


def faults_of_hydra(chosen: Sequence[str], settings: Sequence[str]) -> list[ConfigError]:
    """What is wrong with settings of Hydra's own, such as hydra.launcher.n_jobs=two, where `chosen` are the choices."""
    from hydra import compose as compose_by_hydra
    from omegaconf import OmegaConf

    parsed, found = parse(settings)
    if found:
        return found
    try:
        with _sources():
            config = compose_by_hydra(overrides=[*chosen, *search_path()], return_hydra_config=True)
    except _unusable() as error:
        return [ConfigError(" ".join(chosen), str(error).splitlines()[0])]
    OmegaConf.set_readonly(config.hydra, None)
    for text, override in zip(settings, parsed, strict=True):
        try:
            found += apply(config, [override])
        except _unusable() as error:
            found.append(ConfigError(text, str(error).splitlines()[0]))
    return found


@functools.cache
def options(group: str) -> list[str]:
    """The choices of a group."""
    with _sources() as loader:
        files = {path.stem for folder in _beside for path in Path(folder, group).glob("*.yaml")}
        return sorted({*loader.get_group_options(group), *files})


_beside: list[str] = []


def search_beside(folder: str) -> None:
    """Looks for choices in another folder too (--config-dir). Raises UserError if there is none."""
    if not Path(folder).is_dir():
        raise UserError(f"--config-dir {folder}: there is no such folder")
    _beside.append(str(Path(folder).resolve()))
    _cached.cache_clear()
    options.cache_clear()


def config_dirs() -> tuple[str, ...]:
    """Absolute paths of the folders of --config-dir."""
    return tuple(_beside)


def search_path() -> list[str]:
    """What Hydra has to be told for it to look in those folders."""
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


def _unusable() -> tuple[type[Exception], ...]:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return (HydraException, OmegaConfBaseException)


def _keys(node: Any, groups: Collection[str]) -> list[str]:
    from omegaconf import OmegaConf

    return (
        sorted({*(str(key) for key in node if key != "_target_"), *groups})
        if OmegaConf.is_dict(node)
        else []
    )
