"""python -m nmt.index model=RUN_DIR source=FILE target=FILE output=FILE.safetensors

An index of training sentences by what the encoder makes of them: nmt.serve index=FILE shows which of them are most like a
sentence to the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import IndexSettings


def run(settings: IndexSettings) -> None:
    """Writes the index. Raises UserError if the files are not aligned, or the model reads other than plain text."""
    import logging
    from pathlib import Path

    from nmt.data.lines import check_aligned, find_file, read_lines
    from nmt.foundation.errors import UserError
    from nmt.inference.explanations.neighbors import make_index
    from nmt.loading import translator

    files = [find_file(settings.source), find_file(settings.target)]
    sources, targets = map(read_lines, files)
    check_aligned(files[0], len(sources), files[1], len(targets))
    model = translator(settings.model, device=settings.device)
    if not model.tokenizer.columns.plain:
        raise UserError(
            f"model={settings.model}: reads {model.tokenizer.columns.described}; an index is of plain texts"
        )
    found = make_index(model, sources, targets)
    found.write(Path(settings.output))
    logging.getLogger("nmt.index").info(
        "%s: %s sentences", settings.output, f"{len(found.sources):,}"
    )


main = command_line("index", run)

if __name__ == "__main__":
    main()
