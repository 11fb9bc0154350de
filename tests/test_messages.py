"""Advice in messages can be followed: keys, choices, values, flags and commands that any message names exist."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from commands import run

import nmt
from nmt import components
from nmt.configuration import yaml_files
from nmt.configuration.compose import RECIPE
from nmt.configuration.configure import COMMANDS, configure, settings_class
from nmt.configuration.overrides import parse
from nmt.foundation.parameter_types import mismatch
from nmt.foundation.part_limits import ConfigErrors
from nmt.foundation.signatures import signature

PACKAGE = Path(nmt.__file__).parent
GAP = "\0"
"""Placeholder for a value that a message gets at run time."""
ADVICE = re.compile(r"(?<![\w.?&/-])([a-z][a-z_]*(?:\.[a-z_]+)*)=(\[[^\]]*\]|[^\s,;:)'\"\]?%]*)")
NOT_SETTINGS = {
    "class", "hypotheses", "install", "key", "log_prob", "logprob", "lowercase", "nmt", "plugins", "sampling", "tokens", "version",
    "weights",
}  # fmt: skip
"""Words before = other than keys: attributes of pages and objects, parameters in Python, columns of files."""
FOREIGN = {"--nproc-per-node", "--max-restarts", "--logdir"}
"""Flags of torchrun and tensorboard."""


def text_of(node) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(part.value if isinstance(part, ast.Constant) else GAP for part in parts)


def messages() -> list[tuple[str, str]]:
    """Place and text of all strings with a blank that are neither documentation nor HTML."""
    texts = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [*ast.walk(tree)]
        skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in node.values}
        for node in nodes:
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) in skipped or not (is_text or isinstance(node, ast.JoinedStr)):
                continue
            text = text_of(node)
            if " " in text and "<" not in text and not {"drawing", "native"} & {*path.parts}:
                texts.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", text))
    return texts


@pytest.fixture(scope="module")
def hints() -> dict:
    """Annotations of all keys of all commands and choices, by their whole names."""
    result: dict[str, list] = {}
    for kind in map(settings_class, COMMANDS):
        annotations, _ = signature(kind)
        for key, hint in annotations.items():
            if hint not in (components.Group, components.Group | None):
                result.setdefault(key, []).append(hint)
    for group, configured in components.GROUPS.items():
        is_class = configured.is_class
        files = () if is_class else Path(yaml_files.CONF, group).glob("*.yaml")
        nodes = [yaml.safe_load(file.read_text(encoding="utf-8")) or {} for file in files]
        classes = [components.class_of(group, node) for node in nodes if "_target_" in node]
        for part in [components.class_of(group, {})] if is_class else classes:
            named, _ = signature(part)
            for key, hint in named.items():
                result.setdefault(f"{group}.{key}", []).append(hint)
    return result


def wrong(key: str, value: str, hints: dict) -> str | None:
    """The fault of `key=value` as advice; an empty text if there is none."""
    groups = {group for command in COMMANDS for group in yaml_files.groups_of(command)}
    is_open = not value or GAP in value or re.search("[A-Z…(]", value)
    if key in groups:
        known = [*yaml_files.options(key), *(["null"] if key == RECIPE else [])]
        return None if is_open or value in known else f"no choice; there are {known}"
    if key in NOT_SETTINGS:
        return None
    if key not in hints:
        return "key not found"
    if is_open:
        return None
    overrides, faults = parse([f"{key}={value}"])
    problems = [mismatch(overrides[0].value(), hint) for hint in hints[key] if not faults]
    return None if None in problems else f"{faults or problems[0]}"


def test_keys_choices_and_values_in_messages_exist(hints):
    advice = [(place, match) for place, text in messages() for match in ADVICE.finditer(text)]
    assert len(advice) > 150
    faults = [
        f"{place}: {match[0]!r}: {problem}"
        for place, match in advice
        if (problem := wrong(match[1], match[2], hints))
    ]
    assert not faults, "\n".join(faults)


def test_flags_and_commands_in_messages_exist():
    helped = run("train", "--help").stdout.decode()
    faults = [
        (place, flag)
        for place, text in messages()
        for flag in re.findall(r"(?<!\S)--[a-z][a-z-]+", text)
        if flag not in helped and flag not in FOREIGN
    ]
    assert faults == []
    commands = {
        (place, name)
        for place, text in messages()
        for name in re.findall(r"(?:python -m |\b)nmt\.([a-z]+)(?![\w.(])", text)
    }
    assert len(commands) > 10
    assert {one for one in commands if not (PACKAGE / f"{one[1]}.py").exists()} == set()


@pytest.mark.parametrize(
    ("command", "typed", "marker"),
    [
        ("train", "sweep.grids=[seed=1 decoder=luong, seed=2]", "Put each item in quotes: "),
        ("train", 'sweep.grids="[seed=1 decoder=luong,seed=2]"', "such as "),
        ("train", "data.validation=a.b,c(d", "Put the value in quotes twice: "),
        ("translate", "model=x,y", "Write a list as "),
        ("translate", "input=a.ha,b.en", "write text with commas as "),
    ],
)
def test_advice_about_quotes_is_followed(command, typed, marker):
    """The command that the message recommends, as a shell passes it, does not have this fault."""
    with pytest.raises(ConfigErrors) as caught:
        configure(command, [typed])
    key = typed.partition("=")[0]
    line = next(line for line in str(caught.value).splitlines() if marker in line)
    advised = line.partition(marker)[2].partition(";")[0].partition(", such")[0]
    text = advised if advised.startswith(key) else f"{key}={advised}"
    meant = typed.partition("=")[2].strip('"')
    shell = text.replace("'", "") if text.count("'") else text
    [override], faults = parse([shell])
    assert not faults
    value = override.value()
    shown = ",".join(value) if isinstance(value, list) else str(value)
    assert shown.replace(" ", "") == meant.strip("[]").replace(" ", "")
