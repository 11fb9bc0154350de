"""What an output depends on: models, files and settings, each as a hash of its content."""

import hashlib
import json
from pathlib import Path
from typing import Any

from nmt.configuration.model_settings import models
from nmt.configuration.settings import Settings
from nmt.data.lines import find_file
from nmt.storage.checkpoint import find_checkpoint

MODELS = ("model", "reverse", "compare")
FREE = ("output", "resume", "device")
"""Settings that an output does not depend on."""


def fingerprint(settings: Settings) -> dict[str, str]:
    """By the name of each setting, a hash of what it stands for. Raises UserError if a model or a file is not there."""
    values, found = settings.values, dict[str, str]()
    if values.get("output") is None:
        return {}  # stdout goes on with nothing
    for key in MODELS:
        files = [find_checkpoint(path) for path in models(values.pop(key, None))]
        if files:
            found[key] = _hash(*files)
    for key in settings.read:
        name = values.pop(key, None)
        if name:
            found[key] = _hash(find_file(name))
    rest = {key: value for key, value in values.items() if key not in FREE}
    found["settings"] = hashlib.sha256(
        json.dumps(rest, sort_keys=True, default=str).encode()
    ).hexdigest()
    return found


def hash_of_files(named: Any) -> str:
    """Of what a path names, or a list of paths: files, or run directories, whose best model counts."""
    paths = [Path(path) for path in (named if isinstance(named, list) else [named]) if path]
    return _hash(
        *(find_checkpoint(str(path)) if path.is_dir() else find_file(str(path)) for path in paths)
    )


def _hash(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
