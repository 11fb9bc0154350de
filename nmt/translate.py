"""python -m nmt.translate model=RUN_DIR [input=FILE] [output=FILE] [search=beam search.width=5] [format=jsonl] …

One line out for every line in, in order. Without input=, stdin is translated as it arrives; at a terminal, line by line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import TranslateSettings
    from nmt.inference.input_lines import InputLines
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
    from nmt.inference import output_formats as formats
    from nmt.inference.input_lines import InputLines
    from nmt.inference.output_sinks import is_complete, open_sink
    from nmt.inference.prompt import at_terminal
    from nmt.inference.translation import Translation
    from nmt.pipeline.fingerprint import fingerprint

    show, form = settings.attention_map, settings.format
    source = InputLines(
        settings.input, settings.errors, prefix=settings.prefix, constraints=settings.constraints
    )
    if settings.resume and is_complete(str(settings.output), source.count, form == "moses"):
        return None
    finished: list[tuple[str, Translation]] = []
    aside = settings.output or sys.stdout is None or not sys.stdout.isatty()
    shown = source.count if aside else 0  # not between lines that people read
    work = fingerprint(settings)
    with open_sink(settings.output, work=work, resume=settings.resume, resumable=True) as sink:
        translator, beside = _models(settings, source)
        if not (settings.input or settings.output or show) and form == "text" and _at_terminal():
            return at_terminal(translator, settings.units)
        details = max(formats.details_needed(form), 1 if show else 0)
        number = sink.finished_lines
        with Progress("translating", shown - number, "lines") as step:
            for chunk in source.chunks(skip=number):
                try:
                    translations = translator.translations(
                        chunk.lines, chunk.constraints, details, step if shown else _quiet
                    )
                except ValueError as error:  # impossible for this search or model
                    raise UserError(str(error)) from error
                lines = formats.lines(
                    form, translator.tokenizer, number, chunk.lines, translations, settings.units
                )
                sink.write(lines, input_lines=len(chunk.lines))
                number += len(chunk.lines)
                if show:
                    finished += zip(chunk.lines, translations, strict=True)
    if show:
        own = models(settings.model)
        short = {path: Path(path).name for path in (*own, *beside)}
        names = short if len(set(short.values())) == len(short) else {path: path for path in short}
        name = " + ".join(names[path] for path in own) if beside else ""
        others = {names[path]: other for path, other in beside.items()}
        lines, translations = [line for line, _ in finished], [found for _, found in finished]
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
    settings: TranslateSettings, source: InputLines
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
