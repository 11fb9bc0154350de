"""python -m nmt.translate model=RUN_DIR [input=FILE] [output=FILE] [search=beam search.width=5] [format=jsonl] …

One line out for every line in, in order. Without input=, stdin is translated as it arrives; at a terminal, line by line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import TranslateSettings
    from nmt.inference.streams import Source
    from nmt.inference.translator import Translator
    from nmt.tokenizer.columns import Columns


def run(settings: TranslateSettings) -> None:
    """Translates a file or stdin."""
    import sys
    from pathlib import Path

    from nmt.configuration.model_settings import models
    from nmt.drawing.attention_map import write_map
    from nmt.foundation.errors import UserError
    from nmt.foundation.progress import Progress
    from nmt.inference import formats
    from nmt.inference.prompt import at_terminal
    from nmt.inference.streams import Sink, Source, check_complete
    from nmt.inference.translation import Translation
    from nmt.pipeline.fingerprint import fingerprint

    show, form = settings.attention_map, settings.format
    source = Source(
        settings.input, settings.errors, prefix=settings.prefix, constraints=settings.constraints
    )
    sink = Sink(settings.output, settings.resume, form == "moses", fingerprint(settings))
    if sink.complete:
        check_complete(str(settings.output), source.count, form == "moses")
        return
    try:
        translator, beside = _models(settings, source)
    except BaseException:
        sink.release()
        raise
    if not (settings.input or settings.output or show) and form == "text" and _at_terminal():
        return at_terminal(translator, settings.units)
    details = max(formats.details_needed(form), 1 if show else 0)
    seen: list[tuple[str, Translation]] = []
    number = sink.lines
    aside = settings.output or sys.stdout is None or not sys.stdout.isatty()
    shown = source.count if aside else 0  # not between lines that people read
    with sink as write, Progress("translating", shown - sink.lines, "lines") as step:
        for chunk in source.chunks(skip=sink.lines):
            try:
                translations = translator.translations(
                    chunk.lines, chunk.constraints, details, step if shown else _quiet
                )
            except (
                ValueError
            ) as error:  # the search cannot do what the constraints or the model ask for
                raise UserError(str(error)) from error
            write(
                formats.lines(
                    form, translator.tokenizer, number, chunk.lines, translations, settings.units
                )
            )
            number += len(chunk.lines)
            seen += zip(chunk.lines, translations, strict=True) if show else ()
    if show:
        own = models(settings.model)
        short = {path: Path(path).name for path in (*own, *beside)}
        names = short if len(set(short.values())) == len(short) else {path: path for path in short}
        name = " + ".join(names[path] for path in own) if beside else ""
        others = {names[path]: other for path, other in beside.items()}
        lines, translations = [line for line, _ in seen], [found for _, found in seen]
        write_map(
            translator.attention_maps(lines, translations, name, others, settings.units), Path(show)
        )


def _at_terminal() -> bool:
    import sys

    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout is not None
        and sys.stdout.isatty()
    )


def _quiet(count: int) -> None:
    """No progress is shown: nobody knows how much will come, or the answers stand on the same terminal."""


def _check_line(columns: Columns, line: str) -> None:
    """Raises UserError if the line has not what the model reads, or names a picture that cannot be used."""
    from nmt.data.pictures import check_picture

    columns.split(line)
    if columns.picture_in(line):
        check_picture(columns.picture_in(line))


def _models(
    settings: TranslateSettings, source: Source
) -> tuple[Translator, dict[str, Translator]]:
    """The model that translates, and those whose attention is drawn beside its own. Raises UserError if they cannot do
    what is asked for, or if the input is not what they read."""
    from functools import partial

    from nmt.configuration.model_settings import models
    from nmt.foundation.errors import UserError
    from nmt.loading import translator_for

    translator = translator_for(settings)
    columns = translator.tokenizer.columns
    source.require(partial(_check_line, columns))
    beside = {path: translator_for(settings, path) for path in models(settings.compare)}
    for path, other in beside.items():
        if not other.attends:
            raise UserError(f"compare={path}: this model has no attention to show (decoder=fixed)")
        theirs = other.tokenizer.columns
        if (theirs.sources, theirs.picture, theirs.names[1:]) != (
            columns.sources,
            columns.picture,
            columns.names[1:],
        ):
            raise UserError(
                f"compare={path}: this model reads {theirs.described}, the first one {columns.described}"
            )
    show, form = settings.attention_map, settings.format
    if (show or form == "pharaoh") and not translator.attends:
        what = f"attention_map={show}" if show else "format=pharaoh"
        raise UserError(f"{what}: this model has no attention to show (decoder=fixed)")
    if form == "pharaoh" and not columns.sources:
        raise UserError(
            "format=pharaoh: aligns words, and this model reads pictures; use attention_map= or format=jsonl"
        )
    return translator, beside


main = command_line("translate", run)

if __name__ == "__main__":
    main()
