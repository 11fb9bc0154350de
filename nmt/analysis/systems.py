"""Systems of a comparison: runs and models, which translate, and files of translations."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.analysis.comparison import Comparison
from nmt.analysis.examples import Example
from nmt.data import unique_suffixes
from nmt.data.lines import check_aligned, find_file, read_lines
from nmt.foundation.errors import UserError
from nmt.inference.output_formats import one_line
from nmt.inference.translator import Translator
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class System:
    """A name, a translation of each sentence, and the model that translated, if there is one."""

    name: str
    lines: Sequence[str]
    model: Translator | None = None


def systems_of(
    paths: Sequence[str],
    source: Sequence[str] | None,
    reference: tuple[Path, Sequence[str]],
    load: Callable[[str], Translator],
) -> list[System]:
    """Systems at some paths.

    paths: run directories, checkpoints, or files of translations
    source: sentences; None if unknown
    reference: file of the reference, and its lines
    load: returns the translator of a run directory or checkpoint

    Raises UserError if a path is neither a model nor a file with a line for each line of the
    reference.
    """
    reference_file, reference_lines = reference
    outputs: dict[str, Sequence[str]] = {}
    # Files before models, which need time to translate.
    for path in paths:
        if not (Path(path).is_dir() or path.endswith(".safetensors")):
            file = find_file(path)
            outputs[path] = read_lines(file)
            check_aligned(reference_file, len(reference_lines), file, len(outputs[path]))
        elif source is None:
            raise UserError(f"{path}: a model needs the text that it translates: add source=FILE")
    systems = []
    for path, name in zip(paths, unique_suffixes(list(paths)), strict=True):
        model = None
        if path not in outputs and source is not None:
            model = load(path)
            log.info("%s translates", name)
            tested = _tested(Path(path), source)
            outputs[path] = tested or [*map(one_line, model.translate(list(source)))]
        systems.append(System(name, outputs[path], model))
    return systems


def _tested(folder: Path, source: Sequence[str]) -> list[str] | None:
    """Translations by a run in its test, if that was of the same text."""
    try:
        sentences = read_lines(folder / "test.source.txt")
        translations = read_lines(folder / "test.txt")
    except (OSError, UserError):
        return None
    is_same = sentences == list(source) and len(translations) == len(sentences)
    return translations if is_same else None


def aligned(
    model: Translator, source: Sequence[str], reference: Sequence[str]
) -> list[list[str]] | None:
    """For each sentence, the source word with the highest attention weight at each word of the
    reference. None without attention."""
    if not model.attends:
        return None
    links: list[list[str]] = [[] for _ in source]
    numbers = [i for i in range(len(source)) if words(source[i]) and words(reference[i])]
    maps = model.forced_maps([source[i] for i in numbers], [reference[i] for i in numbers])
    for i, attention in zip(numbers, maps, strict=True):
        # Without </s> on both sides.
        rows = len(attention.target) - attention.ends
        columns = len(attention.source) - attention.ends
        weights = np.asarray(attention.total)[:rows, :columns]
        if weights.size:
            links[i] = [attention.source[column] for column in weights.argmax(1).tolist()]
    return links


def example(systems: Sequence[System], number: int, comparison: Comparison) -> Example:
    """A sentence with its probabilities and attention maps under each model."""
    texts = {system.name: system.lines[number] for system in systems}
    sentence = None if comparison.source is None else comparison.source[number]
    log_probs = {}
    maps = {}
    for system in systems:
        model = system.model
        if model is None or sentence is None or not words(sentence):
            continue
        tokens = model.tokenizer.encode_target(list(texts.values()))
        # Probabilities of the translations of all systems under this model.
        forced = model.force(model.encode([sentence] * len(texts)), tokens, attention=False)
        log_probs[system.name] = {
            name: probabilities.log_prob / len(probabilities.log_probs)
            for name, probabilities in zip(texts, forced, strict=True)
        }
        if model.attends and words(texts[system.name]):
            [maps[system.name]] = model.forced_maps([sentence], [texts[system.name]])
    return Example(
        number=number,
        source=sentence,
        reference=comparison.reference[number],
        outputs=texts,
        scores={name: scores[number] for name, scores in comparison.sentence_scores.items()},
        log_probs=log_probs,
        maps=maps,
    )
