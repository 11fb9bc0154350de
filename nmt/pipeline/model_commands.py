"""Implements the commands that use trained models.

Each function receives the validated settings of its command and calls other packages of nmt, such
as nmt.inference.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, TypeVar

from nmt import components
from nmt.analysis.evaluation import evaluate_file
from nmt.configuration.model_settings import (
    AlignSettings,
    LabelSettings,
    ModelSettings,
    ScoreSettings,
)
from nmt.configuration.translation_settings import EvaluateSettings, TranslateSettings
from nmt.data import as_list
from nmt.drawing import FigureStyle
from nmt.exporting.export_model import export_model
from nmt.foundation.devices import device_of, find_device
from nmt.foundation.part_limits import broken, refuse
from nmt.foundation.ranges import Count, Size
from nmt.foundation.ranks import ALONE, Ranks
from nmt.foundation.torchrun import AGAIN, of_torchrun, together
from nmt.inference.alignment_weights import (
    Attend,
    alignment_by_counts,
    attention_of_model,
    attention_of_vectors,
)
from nmt.inference.explanations.neighbors import index_files
from nmt.inference.file_alignment import Aligner, align_files, compare_files
from nmt.inference.file_translation import translate_file
from nmt.inference.input_lines import InputLines
from nmt.inference.labelling import label_file
from nmt.inference.scoring import score_files
from nmt.inference.translator import Translator
from nmt.loading import text_classifier, translator, translator_for
from nmt.pipeline.fingerprint import fingerprint
from nmt.storage.checkpoint import find_checkpoint
from nmt.storage.files import check_folder, safetensors_metadata

Placed = TypeVar("Placed", bound=ModelSettings)


@contextlib.contextmanager
def _ranks(settings: Placed) -> Iterator[tuple[Ranks, Placed]]:
    """Sets up the process group; yields the ranks, and settings with `device` set for this rank."""
    if not of_torchrun().several:
        yield ALONE, settings
        return
    is_on_gpu = find_device(settings.device).type == "cuda"
    with together(is_on_gpu, AGAIN) as ranks:
        yield ranks, replace(settings, device=str(device_of(ranks, settings.device)))


def translate(settings: TranslateSettings) -> None:
    """Translates the lines of a file or of stdin (nmt.translate)."""
    if settings.launcher == "ray":
        from nmt.pipeline.ray_jobs import run_jobs  # imports Ray

        run_jobs(translate, settings)
    with _ranks(settings) as (ranks, placed):
        source = InputLines(
            settings.input,
            settings.errors,
            prefix=settings.prefix,
            constraints=settings.constraints,
        )
        translate_file(
            partial(translator_for, placed),
            source,
            ranks=ranks,
            output=settings.output,
            work=fingerprint(settings),
            resume=settings.resume,
            job=settings.share,
            format=settings.format,
            units=settings.units,
            model=as_list(settings.model),
            compare=as_list(settings.compare),
            attention_map=settings.attention_map,
            style=FigureStyle(settings.figure_width, settings.font_size),
        )


def score(settings: ScoreSettings) -> float:
    """Scores given translations, and returns their perplexity."""
    with _ranks(settings) as (ranks, placed):
        return score_files(
            partial(translator_for, placed),
            ranks=ranks,
            source=settings.source,
            target=settings.target,
            nbest=settings.nbest,
            output=settings.output,
            work=fingerprint(settings),
            format=settings.format,
            normalize=settings.normalize,
            errors=settings.errors,
        )


def evaluate(settings: EvaluateSettings) -> float:
    """Prints the scores of a model's translations, and returns the score of the configured
    metric."""
    return evaluate_file(
        partial(translator_for, settings),
        components.make(settings.values, "metric"),
        source=settings.source,
        references=as_list(settings.reference),
        output=settings.output,
    )


def align(settings: AlignSettings) -> float | None:
    """Writes word alignments, and returns the alignment error rate if gold alignments are given."""
    if settings.links and settings.gold:
        return compare_files(
            settings.links, settings.gold, source=settings.source, target=settings.target
        )
    with _ranks(settings) as (ranks, placed):
        return align_files(
            _aligner(placed),
            ranks=ranks,
            source=settings.source,
            target=settings.target,
            gold=settings.gold,
            output=settings.output,
            work=fingerprint(settings),
            format=settings.format,
            attention_map=settings.attention_map,
        )


def _aligner(settings: AlignSettings) -> Aligner:
    """Returns an aligner that uses word vectors, a statistical alignment model, or the attention of
    translation models."""
    how = settings.symmetrize
    if settings.vectors:
        source_vectors, target_vectors = settings.vectors
        return Aligner(
            partial(attention_of_vectors, source_vectors, target_vectors, settings.units),
            partial(attention_of_vectors, target_vectors, source_vectors, settings.units),
            how,
            "vectors",
        )
    if settings.method != "attention":
        counts = partial(alignment_by_counts, settings.method, settings.units)
        train = settings.train or []
        return Aligner(
            partial(counts, train), partial(counts, train[::-1]), how, f"method={settings.method}"
        )
    for key in ("model", "reverse"):
        for path in as_list(getattr(settings, key)):
            find_checkpoint(path, key)
    load = cache(partial(translator_for, settings))
    load_reverse: Callable[[], Translator] | None = None
    backward: Attend | None = None
    if settings.reverse:
        load_reverse = cache(partial(translator_for, settings, settings.reverse))
        name = f"reverse={settings.reverse}"
        backward = partial(attention_of_model, load_reverse, name, settings.units, None)
    name = f"model={settings.model}"
    forward = partial(attention_of_model, load, name, settings.units, load_reverse)
    return Aligner(forward, backward, how, source_check=lambda: load().check_line)


def label(settings: LabelSettings) -> None:
    """Writes the predicted labels for each line of a file or of stdin."""
    label_file(
        partial(text_classifier, settings.model, settings.device),
        InputLines(settings.input, settings.errors),
        output=settings.output,
        work=fingerprint(settings),
        format=settings.format,
        explain=settings.explain,
        units=settings.units,
    )


def index(*, model: str, source: str, target: str, output: str, device: str) -> None:
    """Writes an index of training sentences, with which similar sentences can be found."""
    path = Path(output)
    is_other = path.exists() and "nmt_index" not in safetensors_metadata(path)
    refuse(
        broken(
            (path.suffix != ".safetensors", "output", "must end in .safetensors", output),
            (is_other, "output", "exists and is not an index; choose another file", output),
        )
    )
    check_folder(path, f"output={output}")
    load = partial(translator, model, device=device)
    index_files(load, model=model, source=source, target=target, output=output)


def export(*, model: str, format: Literal["onnx", "card", "html"], output: str) -> None:
    """Exports a model as ONNX graphs, as an HTML file, or as a folder for the Hugging Face Hub."""
    has_other_suffix = format == "html" and not output.endswith(".html")
    refuse(broken((has_other_suffix, "output", "must end in .html", output)))
    load = partial(translator, model, device="cpu")
    export_model(load, model=model, format=format, output=output)


def compare(
    *,
    systems: list[str],
    reference: str,
    source: str | None = None,
    train: str | None = None,
    output: str = "comparison",
    examples: Count = 20,
    device: str = "auto",
    samples: Size = 1000,
    trials: Count = 10_000,
    metric: components.Group,
) -> None:
    """Compares several systems' translations of the same source with significance tests."""
    from nmt.analysis.system_comparison import compare_systems  # other commands start sooner

    name_one = "name at least one run, model or file, as in nmt.compare … A B"
    paths = [Path(name) for name in systems]  # A and A/ are one path
    repeated = sorted({str(path) for path in paths if paths.count(path) > 1})
    refuse(
        broken(
            (not systems, "systems", name_one, []),
            (repeated, "systems", "given more than once; give each system only once", repeated),
        )
    )
    compare_systems(
        partial(translator, device=device),
        components.make({"metric": metric}, "metric"),
        systems=systems,
        reference=reference,
        source=source,
        train=train,
        output=output,
        examples=examples,
        samples=samples,
        trials=trials,
    )
