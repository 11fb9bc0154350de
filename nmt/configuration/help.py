"""--help: what conf/ says of a command, with the values that would be used. The YAML files are the
only source.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.configuration.compose import CONF, choices_of, compose, options
from nmt.configuration.faults import shown

COLUMN = 34
"""Where comments begin."""
WIDTH = 125
"""Where lists of choices are broken."""
_LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):.*?(?:\s# (?P<comment>.*))?")
_GROUP = re.compile(r"  - (?P<group>\w+): \w+(?:\s+# (?P<comment>.*))?")
FLAGS = """\
  -m KEY=A,B …                    a run for every combination
  -m KEY=A,B … --dry-run          what these are, what is there already, how long the rest takes
  --help GROUP=CHOICE             this, for another choice
  --cfg job                       the configuration alone
  --config-dir DIR                your own choices, in DIR/GROUP/NAME.yaml
  --version
  -sc install=bash (zsh, fish)    completion of an installed command: eval "$(nmt-{command} -sc install=bash)"
"""


def help_of(command: str, overrides: Sequence[str]) -> str:
    """Usage, groups with their choices, and every key with its value and what it means. Raises
    ConfigErrors for overrides that do not fit.
    """
    config, chosen = compose(command, overrides), choices_of(command, overrides)
    usage, defaults, keys = _read(command)
    for other in re.findall(
        r"^  - ([a-z]+)$", defaults, re.MULTILINE
    ):  # a command that also has what another has
        _, of_other, others = _read(other)
        own = {
            match["key"]
            for line in keys.splitlines()
            if (match := _LINE.fullmatch(line)) and not match["indent"]
        }
        kept = [line for line in others.splitlines() if line.partition(":")[0] not in own]
        defaults, keys = f"{defaults}\n{of_other}", "\n".join([keys, *kept])
    groups = [match for line in defaults.splitlines() if (match := _GROUP.fullmatch(line))]
    parts = ["\n".join(line.removeprefix("#").removeprefix(" ") for line in usage.splitlines())]
    if groups:
        parts.append(
            "Groups, and their choices (GROUP=CHOICE):\n" + "\n".join(map(_choices, groups))
        )
    parts.append("Keys (KEY=VALUE), and what they are here:\n" + "\n".join(_keys(keys, config, ())))
    for match in groups:
        group, choice = match["group"], chosen.get(match["group"])
        if isinstance(config.get(group), dict) and choice is not None:
            parts.append("\n".join(_group(group, str(choice), config[group])))
    parts.append("Flags:\n" + FLAGS.replace("{command}", command))
    return "\n\n".join(parts)


def _read(command: str) -> tuple[str, str, str]:
    """The parts of a command's file: usage, defaults list, keys."""
    usage, body = Path(CONF, f"{command}.yaml").read_text(encoding="utf-8").split("defaults:\n", 1)
    defaults, keys = re.split(r"\n(?=\w)", body.split("\nhydra:")[0], maxsplit=1)
    return usage, defaults, keys


def _choices(match: re.Match[str]) -> str:
    """A group with the choices that its comment names, or with all."""
    named = re.findall(r"\w+", match["comment"] or "")
    there = options(match["group"])
    some = [name for name in named if name in there] if "…" not in (match["comment"] or "") else []
    return textwrap.fill(
        f"  {match['group']:<16}{' '.join(some or there)}", WIDTH, subsequent_indent=18 * " "
    )


def _group(group: str, choice: str, config: Mapping[str, Any]) -> Iterator[str]:
    file = Path(CONF, group, f"{choice}.yaml")
    text = (
        file.read_text(encoding="utf-8")
        if file.is_file()
        else "\n".join(f"{key}: ." for key in config)
    )
    about = " ".join(re.findall(r"^# (.*)$", text, re.MULTILINE))
    yield f"{group}={choice}{f'   {about}' if about else ''}"
    yield from _keys(text, config, (group,))


def _keys(text: str, config: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    """The keys of a file as they are typed, with their values in `config` and their comments."""
    parents: list[str] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match["key"] == "_target_":
            continue
        depth = len(match["indent"]) // 2
        parents[depth:] = [match["key"]]
        value: Any = config
        for key in parents:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            continue
        told = "<give it>" if value == "???" else shown(value)
        entry = f"  {'.'.join([*above, *parents])}={told}"
        yield f"{entry:<{COLUMN - 2}}  {match['comment'] or ''}".rstrip()
