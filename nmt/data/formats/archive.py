"""Reads archives of aligned text files NAME.en, NAME.de, as published by OPUS ("Moses") and WMT.

Columns are the file extensions. Archives are .zip or .tar files; a .tar file may be compressed
(.tar.gz, .tar.xz or .tar.bz2).
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
"""Maximum number of archive members listed in a message."""


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """Yields the lines of a parallel text in an archive, which consists of one file NAME.LANGUAGE
    for each requested language.

    file: path of a .zip or .tar archive
    columns: requested languages

    Raises UserError unless exactly one NAME has files for all requested languages.
    """
    is_zip = zipfile.is_zipfile(file)
    texts = []
    with reading(file, " as an archive"):
        if not is_zip and not tarfile.is_tarfile(file):
            raise ValueError("the file is damaged, or neither .zip nor .tar")
        archive: Any
        with zipfile.ZipFile(file) if is_zip else tarfile.open(file) as archive:
            members = archive.namelist() if is_zip else archive.getnames()
            opener = archive.open if is_zip else archive.extractfile
            name = _text_name(members, file, columns)
            paths = [f"{name}.{language}" for language in columns]
            # Members are read one after another, since a compressed .tar has no random access.
            for path in paths:
                with opener(path) as opened:
                    chunks = decoded_chunks(opened, f"{file}, {path}")
                    texts.append(list(itertools.chain.from_iterable(chunks)))
    for path, lines in zip(paths, texts, strict=True):
        check_aligned(file / paths[0], len(texts[0]), file / path, len(lines))
    rows = Rows(str(file), columns, dict(zip(columns, texts, strict=True)))
    for start in range(0, len(rows), CHUNK):
        yield rows.select(range(start, min(start + CHUNK, len(rows))))


def _text_name(members: Sequence[str], file: Path, columns: Sequence[str]) -> str:
    """Returns the path, without extension, of the only text in an archive that has one file
    NAME.LANGUAGE for each requested language.
    """
    # Archives created on macOS also contain resource files ._NAME.en.
    files = [member for member in members if not Path(member).name.startswith("._")]
    texts = [
        name
        for name in sorted({member.rpartition(".")[0] for member in files})
        if all(f"{name}.{language}" in members for language in columns)
    ]
    if len(texts) == 1:
        return texts[0]
    contents = (
        f"found several texts: {', '.join(texts)}. Unpack the archive and use data=text"
        if texts
        else f"contents: {', '.join(members[:SHOWN_MEMBERS]) or 'no files'}"
    )
    raise UserError(
        f"{file}: expected exactly one text, with one file per language: the same name and the "
        f"extensions {', '.join(columns)}; {contents}"
    )
