"""Digests of all inputs that determine a command's output: models, files and settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_origin

from nmt import components
from nmt.configuration.settings import Settings
from nmt.data import as_list
from nmt.data.lines import find_file
from nmt.foundation.configurations import digest, flat
from nmt.foundation.signatures import signature
from nmt.inference.text_input import TextInput, find_input
from nmt.storage.checkpoint import BEST, find_checkpoint

MODELS = ("model", "reverse", "compare")
"""Names of the settings whose values are paths of trained models."""
WITH_FILES = ("init", "model", "vectors", "objective", "tokenizer")
"""Configuration keys and groups whose values may be paths of files or run folders."""
FREE = ("output", "resume", "device", "threads", "log", "job", "jobs", "launcher")
"""Names of the settings that do not affect the content of the output."""


def fingerprint(settings: Settings) -> dict[str, str]:
    """Returns digests of models and files by setting name, and one digest of all other settings.

    Returns an empty dictionary for output to stdout, which cannot be resumed.

    Raises UserError if a model or a file is not found.
    """
    values = settings.values
    if values.get("output") is None:
        return {}
    files = {key: [*map(find_checkpoint, as_list(values.get(key)))] for key in MODELS}
    inputs = {
        key: "".join(find_input(name).digest() for name in as_list(values[key]))
        for key in settings.read
        if values.get(key) and key not in MODELS
    }
    hashed = {*FREE, *MODELS, *settings.read}  # settings hashed by file content, or without effect
    rest = {key: value for key, value in values.items() if key not in hashed}
    return {
        **{key: TextInput(key, paths).digest() for key, paths in files.items() if paths},
        **inputs,
        "settings": digest(rest),
    }


def hash_of_file(path: str) -> str:
    """Returns a digest of a file, or of the best model of a run folder."""
    file = find_checkpoint(path) if Path(path).is_dir() else find_file(path)
    return TextInput(path, [file]).digest()


def named_files(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that name files or run folders, by dotted key. Digests replace the
    paths: a digest depends only on the content of the file, or of the best checkpoint of the run
    folder.

    Raises ConfigErrors if the class of a group is invalid.
    """
    named = {}
    for group in WITH_FILES:
        node: Any = config.get(group)
        is_group = isinstance(node, Mapping)
        hints = signature(components.class_of(group, node))[0] if is_group else {}
        for key, value in flat({group: node}).items():
            # A choice, such as model.tying=output, is not a path.
            is_choice = get_origin(hints.get(key.partition(".")[2])) is Literal
            content = value if is_choice else _by_content(value)
            if content != value:
                named[key] = content
    return named


def _by_content(value: Any) -> Any:
    """Returns the value of a setting in which digests replace the paths of files and folders."""
    if isinstance(value, list):
        return [_by_content(item) for item in value]
    if not isinstance(value, str):
        return value
    is_path = Path(value).is_file() or Path(value, BEST).is_file()
    return hash_of_file(value) if is_path else value
