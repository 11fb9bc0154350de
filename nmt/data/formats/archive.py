"""Archives with aligned text files NAME.en, NAME.de, as OPUS ("Moses") and WMT publish them.

Columns are the endings of the file names. The archive is a .zip, or a .tar (.gz, .xz, .bz2).
"""

import itertools
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from nmt.data.formats import Rows
from nmt.data.lines import CHUNK, check_aligned, decoded_chunks
from nmt.foundation.errors import UserError

Archive = zipfile.ZipFile | tarfile.TarFile
SHOWN_MEMBERS = 8
"""Members of an archive that a message lists."""


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The lines of the only NAME with all endings. Raises UserError if there is not exactly one."""
    try:
        with _opened(file) as archive:
            name = _text_name(archive, file, columns)
            members = [f"{name}.{language}" for language in columns]
            # one after another: a compressed .tar cannot be read at two places
            texts = [_lines(archive, member, file) for member in members]
    except tarfile.ReadError as error:
        problem = "damaged, or neither .zip nor .tar"
        raise UserError(f"{file}: cannot be read as an archive ({problem})") from error
    except UserError:
        raise
    except Exception as error:  # decompressors raise errors of many types
        raise UserError(f"{file}: cannot be read as an archive ({error})") from error
    for member, lines in zip(members, texts, strict=True):
        check_aligned(file / members[0], len(texts[0]), file / member, len(lines))
    rows = Rows(str(file), columns, dict(zip(columns, texts, strict=True)))
    for start in range(0, len(rows), CHUNK):
        yield rows.select(range(start, min(start + CHUNK, len(rows))))


def _opened(file: Path) -> Archive:
    return zipfile.ZipFile(file) if zipfile.is_zipfile(file) else tarfile.open(file)


def _text_name(archive: Archive, file: Path, columns: Sequence[str]) -> str:
    """The NAME of the text that the archive has in all languages."""
    if isinstance(archive, zipfile.ZipFile):
        members = archive.namelist()
    else:
        members = archive.getnames()
    # archives made on a Mac hold ._NAME.en, and the same in a folder __MACOSX
    files = [member for member in members if not Path(member).name.startswith("._")]
    names = {member.rpartition(".")[0] for member in files}
    texts = [
        name
        for name in sorted(names)
        if all(f"{name}.{language}" in members for language in columns)
    ]
    if len(texts) == 1:
        return texts[0]
    contents = ", ".join(members[:SHOWN_MEMBERS]) or "no files in it"
    if texts:
        contents = f"several: {', '.join(texts)}. Unpack it and use data=text"
    raise UserError(
        f"{file}: needs one text with the endings {', '.join(columns)}. There are {contents}"
    )


def _lines(archive: Archive, member: str, file: Path) -> list[str]:
    """The lines of a member. Raises UserError if it is a folder or a link."""
    opened: IO[bytes] | None
    if isinstance(archive, zipfile.ZipFile):
        opened = archive.open(member)
    else:
        opened = archive.extractfile(member)
    if opened is None:
        raise UserError(f"{file}: {member} in it is no file")
    with opened:
        return list(itertools.chain.from_iterable(decoded_chunks(opened, f"{file}, {member}")))
