"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from nmt.foundation.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces a file's content whole or not at all. Raises UserError if that fails."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        kept = "; the previous file is unharmed" if path.exists() else ""
        raise UserError(f"{path}: cannot be written ({error.strerror or error}){kept}") from error
