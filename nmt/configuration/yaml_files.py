"""The YAML files of conf/ and of folders with additional choices, read by Hydra."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from nmt.foundation import plugins
from nmt.foundation.errors import UsageError, first_line, quoted
from nmt.foundation.part_limits import ConfigError, ConfigErrors

_package = Path(__file__).resolve().parent.parent
CONF = str(_package / "conf" if (_package / "conf").is_dir() else _package.parent / "conf")
"""Folder of the YAML files, inside the package if installed, else beside the package in a
checkout."""
HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError)
"""Exception types that Hydra raises for invalid configurations."""
added_folders: list[str] = []
"""Folders given with --config-dir, which contain additional YAML choices."""


def search_beside(folder: str) -> None:
    """Adds a folder of YAML choices (--config-dir); raises UserError if the folder is not found."""
    if not Path(folder).is_dir():
        raise UsageError(f"--config-dir {folder}: folder not found")
    added_folders.append(str(Path(folder).resolve()))


def folders() -> tuple[str, ...]:
    """Returns the folders of additional YAML choices, from --config-dir and from plugins."""
    return (*added_folders, *plugins.folders())


def search_path() -> list[str]:
    """Returns the Hydra override that adds the folders of additional choices."""
    paths = ",".join(map(quoted, folders()))
    return [f"hydra.searchpath=[{paths}]"] if paths else []


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


def options(group: str) -> list[str]:
    """Returns the names of all choices in a configuration group."""
    return _options(group, folders())


@functools.cache
def _options(group: str, folders: tuple[str, ...]) -> list[str]:
    with hydra_loader() as loader:
        files = {path.stem for folder in folders for path in Path(folder, group).glob("*.yaml")}
        return sorted({*loader.get_group_options(group), *files})


def by_hydra(command: str | None, overrides: Sequence[str]) -> Any:
    """Returns the configuration composed by Hydra, including Hydra's own settings.

    command: name of the YAML file in conf/; None composes only Hydra's settings
    overrides: choices of groups

    Raises ConfigErrors if Hydra raises an error.
    """
    try:
        with hydra_loader():
            return hydra.compose(
                command, overrides=[*overrides, *search_path()], return_hydra_config=True
            )
    except HYDRA_ERRORS as error:
        choices = " ".join(text for text in overrides if not text.startswith("~"))
        raise ConfigErrors([ConfigError(choices, reason(error))]) from error


@contextmanager
def hydra_loader() -> Iterator[Any]:
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
    first, *others = str(error).strip().splitlines() or [""]
    return " ".join([first, *others[:1]]) if first.endswith(":") else first_line(error)
