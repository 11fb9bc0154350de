"""The systems of a comparison: runs and models, which translate, and files that any system has written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
    """A name, an output line for each source line, and the model that wrote it, if it is one of ours."""

    name: str
    lines: Sequence[str]
    model: Translator | None = None


def systems_of(
    paths: Sequence[str],
    source: Sequence[str] | None,
    reference: tuple[Path, Sequence[str]],
    load: Callable[[str], Translator],
) -> list[System]:
    """Raises UserError if a path is neither a model nor a file with a line for each line of the reference. `load`: the
    translator of a run directory or checkpoint."""
    file, lines = reference
    written = dict[str, Sequence[str]]()
    for path in paths:  # files first: a model takes its time
        if not (Path(path).is_dir() or path.endswith(".safetensors")):
            output = find_file(path)
            written[path] = read_lines(output)
            check_aligned(file, len(lines), output, len(written[path]))
        elif source is None:
            raise UserError(f"{path}: a model needs the text that it translates: add source=FILE")
    found = []
    for path, name in zip(paths, unique_suffixes(list(paths)), strict=True):
        if path in written or source is None:
            found.append(System(name, written[path]))
            continue
        model = load(path)
        log.info("%s translates", name)
        found.append(
            System(
                name,
                _kept(Path(path), source) or [*map(one_line, model.translate(list(source)))],
                model,
            )
        )
    return found


def _kept(folder: Path, source: Sequence[str]) -> list[str] | None:
    """What a run wrote when it was tested, if that was the same text."""
    try:
        tested, output = (read_lines(folder / name) for name in ("test.source.txt", "test.txt"))
    except (OSError, UserError):
        return None
    return output if tested == list(source) and len(output) == len(tested) else None


def aligned(
    model: Translator, source: Sequence[str], reference: Sequence[str]
) -> list[list[str]] | None:
    """By sentence, the source word that each word of the reference is aligned with: the one that the model's attention gives
    the most weight while it is forced to write it. None without attention."""
    if not model.attends:
        return None
    found: list[list[str]] = [[] for _ in source]
    full = [i for i in range(len(source)) if words(source[i]) and words(reference[i])]
    maps = model.forced_maps([source[i] for i in full], [reference[i] for i in full])
    for i, each in zip(full, maps, strict=True):
        inner = np.asarray(each.total)[
            : len(each.target) - each.ends, : len(each.source) - each.ends
        ]
        found[i] = [each.source[int(place)] for place in inner.argmax(1)] if inner.size else []
    return found


def example(
    systems: Sequence[System],
    place: int,
    source: Sequence[str] | None,
    reference: Sequence[str],
    scores: Mapping[str, Sequence[float]],
) -> Example:
    """One sentence with everything that the models can say of it."""
    texts = {system.name: system.lines[place] for system in systems}
    log_probs, maps = {}, {}
    for system in systems:
        if system.model is None or source is None or not words(source[place]):
            continue
        model, line = system.model, source[place]
        given = model.tokenizer.encode_target(list(texts.values()))
        forced = model.force(model.encode([line] * len(given)), given, attention=False)
        log_probs[system.name] = {
            name: one.log_prob / len(one.log_probs) for name, one in zip(texts, forced, strict=True)
        }
        if model.attends and words(texts[system.name]):
            [maps[system.name]] = model.forced_maps([line], [texts[system.name]])
    return Example(
        place, source[place] if source is not None else None, reference[place], texts,
        {name: each[place] for name, each in scores.items()}, log_probs, maps,
    )  # fmt: skip
