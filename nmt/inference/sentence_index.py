"""Index of training sentences by the encoder's summaries, as a file."""

import logging
from collections.abc import Callable
from pathlib import Path

from nmt.data.lines import check_aligned, find_file, read_lines
from nmt.foundation.errors import UserError
from nmt.inference.explanations.neighbors import make_index
from nmt.inference.translator import Translator

log = logging.getLogger(__name__)


def index_files(
    load: Callable[[], Translator], *, model: str, source: str, target: str, output: str
) -> None:
    """Writes the index of aligned files.

    load: returns the model
    model: its path, in messages
    source, target: files with a sentence per line
    output: file of the index

    Raises UserError if the files are not aligned, or the model reads other than plain text.
    """
    files = [find_file(source), find_file(target)]
    sources, targets = (read_lines(file) for file in files)
    check_aligned(files[0], len(sources), files[1], len(targets))
    translator = load()
    columns = translator.tokenizer.columns
    if not columns.plain:
        raise UserError(f"model={model}: reads {columns.described}; an index is of plain texts")
    index = make_index(translator, sources, targets)
    index.write(Path(output))
    log.info("%s: %s sentences", output, f"{len(index.sources):,}")
