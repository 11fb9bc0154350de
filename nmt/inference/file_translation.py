"""Translation of a file or of stdin, line by line."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nmt.data import unique_suffixes
from nmt.data.lines import Errors
from nmt.data.pictures import check_picture
from nmt.drawing.attention_map import write_map
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.inference.input_lines import InputLines
from nmt.inference.output_formats import FormatName, details_needed
from nmt.inference.output_formats import lines as formatted
from nmt.inference.output_sinks import OnFailure, is_complete, open_sink
from nmt.inference.prompt import at_terminal
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.tokenizer.columns import Columns
from nmt.tokenizer.words import Units


def translate_file(
    load: Callable[[str | None], Translator],
    *,
    model: Sequence[str],
    compare: Sequence[str],
    input: str | None,
    output: str | None,
    work: Mapping[str, str],
    format: FormatName,
    errors: Errors,
    resume: bool,
    prefix: str | None,
    constraints: str | None,
    attention_map: str | None,
    units: Units,
) -> None:
    """Writes the translation of each line.

    load: returns the translator of a path, or, of None, the one that translates
    model: paths of the models that translate, which name their attention maps
    compare: paths of models whose attention is drawn beside it
    input, output: files; None: stdin, stdout
    work: names and hashes of everything that the output depends on
    format: form of the output lines
    errors: treatment of lines that are not UTF-8
    resume: continues an interrupted output
    prefix, constraints: files with the beginning, and the required words, of each translation
    attention_map: file with a drawing of the attention weights
    units: words or pieces in that drawing and in alignments

    Raises UserError if the input or the models cannot do what is asked for.
    """
    source = InputLines(input, errors, prefix=prefix, constraints=constraints)
    if resume and is_complete(str(output), source.count, format == "moses"):
        return
    finished: list[tuple[str, Translation]] = []
    on_failure: OnFailure = "resume" if input else "keep"
    with open_sink(output, work=work, resume=resume, on_failure=on_failure) as sink:
        translator = load(None)
        columns = translator.tokenizer.columns
        source.require(partial(_check_line, columns))
        others = {path: load(path) for path in compare}
        _check_models(translator, others, format, attention_map)
        interactive = not (input or output or attention_map) and format == "text"
        if interactive and _is_terminal(sys.stdin) and _is_terminal(sys.stdout):
            at_terminal(translator, units)
            return
        details = max(details_needed(format), 1 if attention_map else 0)
        number = sink.finished_lines
        # No progress between lines on a terminal.
        total = source.count - number if output or not _is_terminal(sys.stdout) else 0
        with Progress("translating", total, "lines") as step:
            for chunk in source.chunks(skip=number):
                try:
                    translations = translator.translations(
                        chunk.lines, chunk.constraints, details, step if total > 0 else _quiet
                    )
                except ValueError as error:  # impossible for this search or model
                    raise UserError(str(error)) from error
                written = formatted(
                    format, translator.tokenizer, number, chunk.lines, translations, units
                )
                sink.write(written, input_lines=len(chunk.lines))
                number += len(chunk.lines)
                if attention_map:
                    finished += zip(chunk.lines, translations, strict=True)
    if attention_map:
        lines = [line for line, _ in finished]
        translations = [translation for _, translation in finished]
        paths = [*model, *others]
        names = dict(zip(paths, unique_suffixes(paths), strict=True))
        drawn = translator.attention_maps(
            lines,
            translations,
            " + ".join(names[path] for path in model) if others else "",
            {names[path]: other for path, other in others.items()},
            units,
        )
        write_map(drawn, Path(attention_map))


def _is_terminal(stream: object) -> bool:
    """Whether a standard stream is open and a terminal."""
    return stream is not None and stream.isatty()  # type: ignore[attr-defined, no-any-return]


def _quiet(count: int) -> None:
    """Progress callback that shows nothing."""


def _check_line(columns: Columns, line: str) -> None:
    """Raises UserError if a line has other columns, or names a picture that cannot be used."""
    columns.split(line)
    if columns.picture_in(line):
        check_picture(columns.picture_in(line))


def _check_models(
    translator: Translator,
    others: Mapping[str, Translator],
    format: FormatName,
    attention_map: str | None,
) -> None:
    """Raises UserError if a model lacks attention that is to be shown, or reads other columns."""
    columns = translator.tokenizer.columns
    for path, other in others.items():
        if not other.attends:
            raise UserError(f"compare={path}: this model has no attention to show (decoder=fixed)")
        if _layout(other.tokenizer.columns) != _layout(columns):
            raise UserError(
                f"compare={path}: this model reads {other.tokenizer.columns.described}, "
                f"the first one {columns.described}"
            )
    if (attention_map or format == "pharaoh") and not translator.attends:
        key = f"attention_map={attention_map}" if attention_map else "format=pharaoh"
        raise UserError(f"{key}: this model has no attention to show (decoder=fixed)")
    if format == "pharaoh" and not columns.sources:
        raise UserError(
            "format=pharaoh: aligns words, and this model reads pictures; "
            "use attention_map= or format=jsonl"
        )


def _layout(columns: Columns) -> tuple[int, bool, tuple[str, ...]]:
    """Columns of the source that models must share to read the same lines."""
    return columns.sources, columns.picture, tuple(columns.names[1:])
