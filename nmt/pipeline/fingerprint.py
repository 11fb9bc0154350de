"""Digests of all inputs that determine a command's output: models, files and settings."""

from pathlib import Path

from nmt.configuration.settings import Settings
from nmt.data import as_list
from nmt.data.lines import find_file
from nmt.foundation.configurations import digest
from nmt.inference.text_input import TextInput, find_input
from nmt.storage.checkpoint import find_checkpoint

MODELS = ("model", "reverse", "compare")
"""Names of the settings whose values are paths of trained models."""
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
