"""Files and run folders that settings name, such as the file of a lexicon."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_origin

from nmt import components
from nmt.foundation.configurations import flat
from nmt.foundation.signatures import signature
from nmt.pipeline.fingerprint import hash_of_file
from nmt.storage.checkpoint import BEST

WITH_FILES = ("init", "model", "vectors", "objective", "tokenizer")
"""Configuration keys and groups whose values may be paths of files or run folders."""


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
