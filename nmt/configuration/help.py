"""Generates the --help text from the keys, values and comments of the YAML files in conf/."""

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.configuration.compose import choices_of, compose
from nmt.configuration.overrides import refuse_sweep
from nmt.configuration.yaml_files import CONF, folders, options
from nmt.foundation.configurations import value_of
from nmt.foundation.errors import UsageError
from nmt.foundation.part_limits import shown

COLUMN = 34
"""Column at which comments begin in the --help text, in characters."""
WIDTH = 125
"""Maximum width in characters of the lines that list the choices of a group in the --help text."""
EXAMPLES = "Commands to begin with:"
"""Heading of the example commands in a command's usage; --help prints the examples last."""
_LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):.*?(?:\s# (?P<comment>.*))?")
_GROUP = re.compile(r"  - (?P<group>\w+): \w+(?:\s+# (?P<comment>.*))?")
TRAINING_FLAGS = """\
  -m KEY=A,B …                    a run for every combination
  -m KEY=A,B … --dry-run          a list of these runs, their states, and the remaining time
  --from RUN/config.yaml          trains a run again
"""
"""Part of the --help text about flags of the commands nmt.train and nmt.classify."""
FLAGS = """\
  --help GROUP=CHOICE             this help for another choice
  --help WORD                     the groups and keys whose name or comment contains a word
  --cfg job                       the composed configuration, values unchecked
  --config-dir DIR                your own choices, in DIR/GROUP/NAME.yaml
  --plugins PACKAGE[,…]           your own classes and choices, of packages whose code you trust
  --version
  -sc install=bash (zsh, fish)    completion of an installed command:
                                  eval "$(nmt-{command} -sc install=bash)"
"""


def help_of(command: str, words: Sequence[str]) -> str:
    """Returns the help text of a command: usage, groups with their choices, and keys with values
    and comments.

    command: name of the command, such as train
    words: command-line overrides, whose values are shown, and words to search; if there are any,
        only the lines about groups and keys that contain all of them are returned

    Raises ConfigErrors if an override is invalid, and UsageError if no line contains the words.
    """
    overrides = [word for word in words if "=" in word]
    sought = [word for word in words if "=" not in word]
    refuse_sweep(overrides)
    config = compose(command, overrides)
    choices = choices_of(command, overrides)
    usage, groups, keys = _read(command)
    usage = "\n".join(line.removeprefix("#").removeprefix(" ") for line in usage.splitlines())
    about, *examples = usage.split(EXAMPLES)
    parts = [about.rstrip()]
    if groups:
        # --help WORD shows whole lines, so a group with all its choices is then one line.
        entries = [_choices(match, sys.maxsize if sought else WIDTH) for match in groups]
        parts.append("\n".join(["Groups and choices (GROUP=CHOICE):", *entries]))
    lines = _keys("\n".join(keys.values()), config)
    parts.append("\n".join(["Keys (KEY=VALUE) with their present values:", *lines]))
    for match in groups:
        group = match["group"]
        if isinstance(config.get(group), dict) and group in choices:
            parts.append("\n".join(_group(group, str(choices[group]), config[group])))
    flags = TRAINING_FLAGS + FLAGS if command in ("train", "classify") else FLAGS
    parts.append("Flags:\n" + flags.replace("{command}", command).rstrip())
    # On a terminal, only the end of a long text is visible.
    parts += [EXAMPLES + example for example in examples]
    text = "\n\n".join(parts) + "\n"
    return _matching(text, sought) if sought else text


def _matching(text: str, words: Sequence[str]) -> str:
    """Returns the lines of a help text about groups and keys that contain all given words.

    Raises UsageError if no line matches.
    """
    lines = [
        line
        for line in text.partition("\nFlags:")[0].splitlines()
        if line.startswith("  ") and all(word.lower() in line.lower() for word in words)
    ]
    if not lines:
        raise UsageError(
            f"--help {' '.join(words)}: not found in the groups and keys of this configuration. "
            "--help without a word lists all groups and the choices of each group. To search the "
            "keys of a choice that is not set, add it to the command, such as data=tsv"
        )
    return "\n".join([*lines, ""])


def _read(command: str) -> tuple[str, list[re.Match[str]], dict[str, str]]:
    """Returns the usage in the YAML file of a command, the lines of its groups, and the lines
    about each top-level key."""
    # The file contains usage (comments), the defaults list, keys, and finally Hydra's settings.
    usage, body = Path(CONF, f"{command}.yaml").read_text(encoding="utf-8").split("defaults:\n", 1)
    defaults, *blocks = re.split(r"\n(?=\w)", body.split("\nhydra:")[0])
    groups = [match for line in defaults.splitlines() if (match := _GROUP.fullmatch(line))]
    keys = {block.partition(":")[0]: block for block in blocks}
    # A command may include the groups and keys of another command.
    for included in re.findall(r"^  - ([a-z]+)$", defaults, re.MULTILINE):
        further_groups, further_keys = _read(included)[1:]
        groups += further_groups
        keys = {**keys, **further_keys, **keys}
    return usage, groups, keys


def _choices(match: re.Match[str], width: int) -> str:
    """Formats a group with the choices that its comment names and the choices of additional
    folders, in lines of at most `width` characters.

    If the comment names no choices, all choices are listed.
    """
    group = match["group"]
    comment = match["comment"] or ""
    choices = options(group)
    named = [word for word in re.findall(r"\w+", comment) if word in choices and "…" not in comment]
    added = [name for name in choices if not Path(CONF, group, f"{name}.yaml").is_file()]
    text = f"  {group:<16}{' '.join([*named, *added] if named else choices)}"
    return textwrap.fill(text, width, subsequent_indent=18 * " ")


def _group(group: str, choice: str, config: Mapping[str, Any]) -> Iterator[str]:
    """Yields the --help lines of a configuration group: its choice with the comment at the top of
    the choice's YAML file, then its keys."""
    files = [Path(folder, group, f"{choice}.yaml") for folder in (CONF, *folders())]
    # The folders of --config-dir and of plugins come after conf/.
    text = next(file for file in files if file.is_file()).read_text(encoding="utf-8")
    about = " ".join(["", "", "", *re.findall(r"^# (.*)$", text, re.MULTILINE)]).rstrip()
    yield f"{group}={choice}{about}"
    yield from _keys(text, config, (group,))


def _keys(text: str, config: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields a line for each key of a YAML file, with its value and comment.

    text: content of the file
    config: current values
    above: components of the dotted key to which the keys of the file belong, such as ("model",)
    """
    parents: list[str] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match["key"] == "_target_":
            continue
        depth = len(match["indent"]) // 2
        # Each level of nesting is indented by two spaces.
        parents[depth:] = [match["key"]]
        value = value_of(config, ".".join(parents))
        if not isinstance(value, Mapping):
            shown_value = "<required>" if value == "???" else shown(value)
            entry = f"  {'.'.join([*above, *parents])}={shown_value}"
            yield f"{entry:<{COLUMN - 2}}  {match['comment'] or ''}".rstrip()
