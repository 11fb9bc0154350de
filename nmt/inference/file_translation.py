"""Translation of the lines of a file or of stdin."""

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nmt.data import unique_suffixes
from nmt.drawing import FigureStyle
from nmt.drawing.attention_map import write_map
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress, log_speed
from nmt.foundation.ranks import Ranks
from nmt.inference.input_lines import InputLines
from nmt.inference.output_formats import DETAILED_HYPOTHESES, FormatName
from nmt.inference.output_formats import lines as formatted
from nmt.inference.output_sinks import OnFailure, StreamSink, is_complete
from nmt.inference.prompt import at_terminal
from nmt.inference.shared_output import NEEDS_ONE_OUTPUT, JobShare, in_parts, sink_of
from nmt.inference.translation import Translation
from nmt.inference.translator import Translator
from nmt.tokenizer.words import Units

Translated = list[tuple[str, Translation]]
"""Type of translated input: a list of input lines, each with its translation."""


def translate_file(
    load: Callable[[str | None], Translator],
    source: InputLines,
    *,
    ranks: Ranks,
    output: str | None,
    work: Mapping[str, str],
    resume: bool,
    job: JobShare,
    format: FormatName,
    units: Units,
    model: Sequence[str],
    compare: Sequence[str],
    attention_map: str | None,
    style: FigureStyle,
) -> None:
    """Translates all input lines. Raises UserError if the models do not support the settings.

    load: function that returns the translator of a model path; for None, the translator of `model`
    source: input lines
    ranks: processes (ranks) that share the work
    output: output file; None writes to stdout
    work: names and hashes of everything that the output depends on
    resume: whether to continue an interrupted output file
    job: share of the lines that this command translates
    format: format of the output lines
    units: units of word alignments: words or subwords
    model: paths of the models that translate; several paths are an ensemble
    compare: paths of further models whose attention weights are plotted
    attention_map, style: path and size of a plot of the attention weights; None omits the plot
    """
    _check_shared(source, in_parts(ranks, output), attention_map)
    if resume and is_complete(str(output), source.count, format == "moses"):
        return
    on_failure: OnFailure = "keep" if source.is_stdin else "resume"
    with sink_of(ranks, output, source.count, work, resume, on_failure, job) as sink:
        translator = load(None)
        source.require(translator.check_line, translator.check_constraint)
        compared = {path: load(path) for path in compare}
        _check_models(translator, compared, format, attention_map)
        to_terminal = output is None and sys.stdout.isatty()
        if to_terminal and source.is_typed and format == "text" and not attention_map:
            return at_terminal(translator, units)
        earlier = sink.finished_lines
        total = 0 if to_terminal else (source.count - earlier) // (ranks.count * job.count)
        began = time.monotonic()
        lines = _translate(translator, source, sink, format, units, total, bool(attention_map))
    _log_end(sum(ranks.gather(sink.finished_lines - earlier)), began, output)
    if attention_map:
        _write_maps(lines, translator, model, compared, units, Path(attention_map), style)


def _log_end(count: int, began: float, output: str | None) -> None:
    """Logs the number of translated lines and the speed, unless the output is stdout.

    count: number of lines
    began: time of `time.monotonic()` before the translation
    """
    if output is not None and count:
        log_speed(count, "translated", time.monotonic() - began, output)


def _write_maps(
    translated: Translated,
    translator: Translator,
    model: Sequence[str],
    compared: Mapping[str, Translator],
    units: Units,
    file: Path,
    style: FigureStyle,
) -> None:
    """Writes a plot of the attention weights of all lines.

    translated: input lines with their translations
    translator: translator that has translated the lines
    model: paths of the translator's models
    compared: other translators by path, whose attention is plotted for comparison
    units: units of the plot: words or subwords
    file: output file
    style: size of the plot
    """
    paths = [*model, *compared]
    names = dict(zip(paths, unique_suffixes(paths), strict=True))
    name = " + ".join(names[path] for path in model) if compared else ""
    others = {names[path]: other for path, other in compared.items()}
    translations = [translation for _, translation in translated]
    lines = [line for line, _ in translated]
    write_map(translator.attention_maps(lines, translations, name, others, units), file, style)


def _translate(
    translator: Translator,
    source: InputLines,
    sink: StreamSink,
    format: FormatName,
    units: Units,
    total: int,
    keep: bool,
) -> Translated:
    """Translates the lines that the sink does not contain yet, and writes the output to the sink.

    total: number of lines, for the progress bar; 0 shows no progress bar
    keep: whether to return the translations, with the attention weights of the best hypothesis
    """
    translated: Translated = []
    details = max(DETAILED_HYPOTHESES.get(format, 0), int(keep))
    work = source.characters * total / max(1, source.count)
    with Progress("translating", total, "lines", work) as step:
        for chunk in sink.own(source.chunks(skip=sink.finished_lines)):
            try:
                translations = translator.translations(
                    chunk.lines, chunk.constraints, details, _counter(step, chunk.lines)
                )
            except ValueError as error:  # the search or the model does not support the settings
                raise UserError(str(error)) from error
            written = formatted(
                format, translator.tokenizer, chunk.first, chunk.lines, translations, units
            )
            sink.write(written, input_lines=len(chunk.lines))
            if keep:
                translated += zip(chunk.lines, translations, strict=True)
    return translated


def _counter(step: Progress, lines: Sequence[str]) -> Callable[[int], None]:
    """Returns a progress callback that reports finished lines and their characters to a display.

    The callback receives the number of newly finished lines. Translators finish the longest lines
    first, so this number also determines the number of characters.

    step: progress display
    lines: lines that are being translated
    """
    lengths = iter(sorted(map(len, lines), reverse=True))

    def finished(count: int) -> None:
        step(count, sum(itertools.islice(lengths, count)))

    return finished


def _check_shared(source: InputLines, in_parts: bool, attention_map: str | None) -> None:
    """Raises UserError if output in part files is combined with stdin or with an attention map."""
    if in_parts and source.is_stdin:
        raise UserError("input=stdin: several processes cannot share stdin; give input=FILE")
    if in_parts and attention_map:
        raise UserError(f"attention_map: {NEEDS_ONE_OUTPUT}")


def _check_models(
    translator: Translator,
    compared: Mapping[str, Translator],
    format: FormatName,
    attention_map: str | None,
) -> None:
    """Raises UserError if a model lacks required attention weights, or if models differ in their
    source columns."""
    columns = translator.tokenizer.columns
    layout = columns.sources, columns.picture, columns.names[1:]
    for path, model in compared.items():
        if not model.attends:
            raise UserError(
                f"compare={path}: the model has no attention (decoder=fixed); choose another model"
            )
        others = model.tokenizer.columns
        # Models that read the same lines agree in the texts, the image and the factors of a line.
        if (others.sources, others.picture, others.names[1:]) != layout:
            raise UserError(
                f"compare={path}: this model reads {others.described}, "
                f"but the model that translates the input reads {columns.described}"
            )
    if (attention_map or format == "pharaoh") and not translator.attends:
        key = f"attention_map={attention_map}" if attention_map else "format=pharaoh"
        raise UserError(
            f"{key}: the model has no attention (decoder=fixed); choose another model, or leave "
            "this key out"
        )
    if format == "pharaoh" and not columns.sources:
        raise UserError(
            "format=pharaoh: aligns source words, but the model reads images; "
            "use attention_map=FILE or format=jsonl"
        )
