"""Archives with aligned text files NAME.en, NAME.de, as OPUS ("Moses") and WMT publish them.

Columns are the endings of the file names. The archive is a .zip, or a .tar (.gz, .xz, .bz2).
"""

import itertools
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows
from nmt.data.lines import CHUNK, check_aligned, decoded_chunks, reading
from nmt.foundation.errors import UserError

SHOWN_MEMBERS = 8
"""Members of an archive that a message lists."""


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The lines of the only NAME with all endings. Raises UserError if there is not exactly one."""
    is_zip = zipfile.is_zipfile(file)
    with reading(file, " as an archive"):
        if not is_zip and not tarfile.is_tarfile(file):
            raise ValueError("damaged, or neither .zip nor .tar")
        archive: Any
        with zipfile.ZipFile(file) if is_zip else tarfile.open(file) as archive:
            members = archive.namelist() if is_zip else archive.getnames()
            opener = archive.open if is_zip else archive.extractfile
            name = _text_name(members, file, columns)
            paths = [f"{name}.{language}" for language in columns]
            # One after another: a compressed .tar cannot be read at two places.
            texts = [_lines(opener(path), file, path) for path in paths]
    for path, lines in zip(paths, texts, strict=True):
        check_aligned(file / paths[0], len(texts[0]), file / path, len(lines))
    rows = Rows(str(file), columns, dict(zip(columns, texts, strict=True)))
    for start in range(0, len(rows), CHUNK):
        yield rows.select(range(start, min(start + CHUNK, len(rows))))


def _text_name(members: Sequence[str], file: Path, columns: Sequence[str]) -> str:
    """The NAME of the text that the archive has in all languages."""
    # Archives made on a Mac also contain ._NAME.en, in a folder __MACOSX.
    files = [member for member in members if not Path(member).name.startswith("._")]
    texts = [
        name
        for name in sorted({member.rpartition(".")[0] for member in files})
        if all(f"{name}.{language}" in members for language in columns)
    ]
    if len(texts) == 1:
        return texts[0]
    contents = ", ".join(members[:SHOWN_MEMBERS]) or "no files"
    if texts:
        contents = f"several: {', '.join(texts)}. Unpack it and use data=text"
    raise UserError(
        f"{file}: needs one text with the endings {', '.join(columns)}. There are {contents}"
    )


def _lines(opened: Any, file: Path, member: str) -> list[str]:
    """The lines of an open member; None instead of a file is a folder or a link."""
    if opened is None:
        raise UserError(f"{file}: {member} in it is not a file")
    with opened:
        return list(itertools.chain.from_iterable(decoded_chunks(opened, f"{file}, {member}")))
