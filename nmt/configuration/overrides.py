"""Overrides such as decoder=luong or seed=3: words in Hydra's grammar, which set keys of a
configuration."""

import functools
import os
import random
import re
import shlex
from collections.abc import MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException

from nmt.configuration.yaml_files import options
from nmt.foundation.errors import PATH, in_list, quoted
from nmt.foundation.part_limits import ConfigError, broken, refuse, shown

KEY = re.compile(r"(\+\+?)?[A-Za-z]\w*([./][A-Za-z]\w*)*=", re.ASCII)
"""Regular expression for the key of an override."""

FUNCTION_OR_QUOTE = re.compile(r"(choice|range|interval|glob|sort|shuffle|tag|int|float)\(|[\"'{]")
"""Regular expression for the beginning of a function, quoted string or dictionary of Hydra."""
DECIMAL = re.compile(r"\d+,\d+(e-?\d+)?")
"""Regular expression for a decimal number that is written with a comma."""


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
            read_overrides = read(text)
            if any(override.package is not None for override in read_overrides):
                errors.append(ConfigError(text, "packages (@) are not supported"))
            for override in read_overrides:
                has_value = override.type is OverrideType.DEL and override.value() is not None
                why = f"~ deletes a key or a choice, so it takes no value; write ~{override.key_or_group}"
                errors += broken((has_value, "", f"{text}: {why}"))
            parsed += read_overrides
        except HydraException:
            advice = _remedy(text)
            if KEY.match(text) and not advice:
                # The value has characters without a place in Hydra's grammar, as in größe=1.txt.
                key, value = text.split("=", 1)
                parsed += _parsed(f"{key}={quoted(value)}")
            else:
                errors.append(ConfigError(text, f"must have the form key=value{advice}"))
    return parsed, errors


def values_of(override: Any) -> list[str]:
    """Returns the values of a sweep override, as they are typed for a single run."""
    # For functions such as choice(…), Hydra's own strings contain backslashes instead of quotes.
    key = override.key_or_group
    why = "interval(…) is supported by sweep=optuna only; give values or range(…)"
    refuse([ConfigError(key, why)] if override.is_interval_sweep() else [])
    try:
        both = swept(override)
    except ValueError:  # a range with step 0
        both = []
    refuse([] if both else [ConfigError(key, f"has no values: {override.input_line}")])
    return [quoted(value) if isinstance(value, str) else text for value, text in both]


def swept(override: Any) -> list[tuple[Any, str]]:
    """Returns the values of a sweep override, each as a value and as text."""
    state = random.getstate()
    values = list(override.sweep_iterator())
    random.setstate(state)  # so that shuffle(…) gives both lists the same order
    return list(zip(values, override.sweep_string_iterator(), strict=True))


@functools.cache
def _parsed(text: str) -> list[Any]:
    # The function glob(…) selects from all choices, also those of plugins and --config-dir.
    loader: Any = SimpleNamespace(get_group_options=lambda group, *_, **__: options(group))
    return OverridesParser.create(loader).parse_overrides([text])


def _remedy(text: str) -> str:
    """Returns the advice for an override that Hydra cannot parse; "" without advice."""
    key, equals, value = text.partition("=")
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
        # A comma may separate values, and ${…} may be a reference.
        (
            re.search(r"[,$]", value) or FUNCTION_OR_QUOTE.match(value),
            f". Put the value in quotes twice: {key}={shlex.quote(quoted(value))}; in a sweep, put "
            "each value in quotes",
        ),
    )
    return next((advice for applies, advice in remedies if applies), "")


def apply(config: MutableMapping[str, Any], overrides: Sequence[Any]) -> list[ConfigError]:
    """Sets keys of a configuration in place, and returns an error for each key whose parent is a
    value instead of a group, such as seed.x=1, and for each deleted key that does not exist.

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
            errors.append(ConfigError(key, f"key not found; {'.'.join(groups)} has no keys"))
        elif override.type is OverrideType.DEL:
            if name not in node:
                errors.append(ConfigError(f"~{key}", "key not found, so it cannot be deleted"))
            node.pop(name, None)
        else:
            node[name] = override.value()
    return errors


def set_keys(config: dict[str, Any], overrides: Sequence[str], why: str) -> list[ConfigError]:
    """Sets single keys of a configuration in place, and returns the errors.

    config: configuration, which is changed in place
    overrides: overrides of single keys, such as trainer.max_epochs=5
    why: reason why the choice of a group cannot change
    """
    parsed, errors = parse(overrides)
    for override in parsed:
        key = override.key_or_group
        if "${" in override.input_line:
            problem = "a reference to another key or variable is not supported here; give the value"
            errors.append(ConfigError(override.input_line, problem))
        elif options(key):
            errors.append(ConfigError(key, why, shown(override.value())))
        else:
            errors += apply(config, [override])
    return errors


def refuse_sweep(overrides: Sequence[str]) -> None:
    """Raises ConfigErrors if a key has several values, which only sweeps accept."""
    why = (
        "this key has several values, which only a sweep (-m) accepts. Write a list as "
        "{0}=[{1}]; write text with commas as {0}='\"{1}\"'"
    )
    decimal = why + "; write a decimal number with a point, as {0}={2}"

    def error(text: str) -> ConfigError:
        key, value = text.split("=", 1)
        values = (key, value, value.replace(",", "."))
        return ConfigError(text, (decimal if DECIMAL.fullmatch(value) else why).format(*values))

    refuse(
        error(text)
        for text in overrides
        if any(override.is_sweep_override() for override in parse([text])[0])
    )
