"""Comparison of systems (nmt.compare): models, which translate, and files of translations."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.analysis.comparison import Comparison
from nmt.analysis.examples import EXAMPLES, Example, most_different, section
from nmt.analysis.examples import markdown as examples_as_markdown
from nmt.analysis.tables import ReportTable, latex, markdown, page_table, terminal, terminal_lines
from nmt.analysis.verdicts import of_comparison
from nmt.analysis.word_statistics import tokens
from nmt.data import unique_suffixes
from nmt.data.lines import check_aligned, find_file, read_aligned, read_lines
from nmt.drawing.pages import origin, page, render
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.inference.output_formats import one_line
from nmt.inference.translator import Translator
from nmt.metric import Metric
from nmt.storage.files import write_atomically
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)
TOKENISED_LINES = 100
"""Minimum number of lines with a separate full stop at the end for a text to count as tokenised.

sacreBLEU warns of tokenised text from the same number of lines on.
"""


@dataclass(frozen=True)
class System:
    """One of the systems in a comparison.

    name: short unique name of the system
    lines: translation of each sentence
    model: translator; None for a file of translations
    """

    name: str
    lines: Sequence[str]
    model: Translator | None = None


def compare_systems(
    load: Callable[[str], Translator],
    metric: Metric,
    *,
    systems: Sequence[str],
    reference: str,
    source: str | None,
    train: str | None,
    output: str,
    examples: int,
    samples: int,
    trials: int,
) -> None:
    """Prints the comparison tables, and writes OUTPUT.md, OUTPUT.json, OUTPUT.tex and OUTPUT.html.

    load: function that returns the translator of a run folder or checkpoint
    metric: metric options, such as `lowercase`
    systems: run folders and checkpoints, which translate, or files of translations
    reference: file with one reference per sentence
    source: file with the source sentences, which models need; None if unknown
    train: file in which word frequencies are counted; None for the reference file
    output: path of the output files without suffix
    examples: number of example sentences
    samples: number of bootstrap samples of the significance tests
    trials: number of randomisation trials of the significance tests

    Raises UserError if a file is missing or empty, or if files differ in length.
    """
    [*sources, reference_lines] = read_aligned(*([source] if source else []), reference)
    source_lines = sources[0] if sources else None
    if not reference_lines:
        raise UserError(f"{reference}: the file is empty")
    compared = _systems(systems, source_lines, find_file(reference), len(reference_lines), load)
    trained = [system.model for system in compared if system.model is not None]
    has_links = trained and source_lines is not None
    counted = read_lines(find_file(train)) if train else reference_lines
    _warn_of_tokenised_text(compared, metric)
    comparison = Comparison(
        source=source_lines,
        reference=reference_lines,
        outputs={system.name: system.lines for system in compared},
        metric=metric.of(trained[0].languages[1] if trained else "", reference_lines),
        counts=Counter(token for line in counted for token in tokens(line)),
        counted=train or "the reference",
        links=_links(trained[0], source_lines or [], reference_lines) if has_links else None,
        samples=samples,
        trials=trials,
    )
    _write(comparison, _examples(comparison, compared, examples), output)


def _systems(
    paths: Sequence[str],
    source: Sequence[str] | None,
    reference: Path,
    count: int,
    load: Callable[[str], Translator],
) -> list[System]:
    """Returns the systems, with translations from files or models.

    paths: run folders, checkpoints, or files of translations
    source: source sentences; None if unknown
    reference: path of the reference file
    count: number of lines of the reference
    load: function that returns the translator of a run folder or checkpoint

    Raises UserError if a path is neither a model nor a file as long as the reference.
    """
    outputs: dict[str, Sequence[str]] = {}
    # Check all files before the models translate.
    for path in paths:
        if not (Path(path).is_dir() or path.endswith(".safetensors")):
            file = find_file(path)
            outputs[path] = read_lines(file)
            check_aligned(reference, count, file, len(outputs[path]))
        elif source is None:
            raise UserError(f"{path}: a model needs a source text; add source=FILE")
    systems = []
    for path, name in zip(paths, unique_suffixes(list(paths)), strict=True):
        model = None
        if path not in outputs and source is not None:
            model = load(path)
            log.info("translating with %s", name)
            outputs[path] = _tested(Path(path), source) or [
                *map(one_line, model.translate(list(source)))
            ]
        systems.append(System(name, outputs[path], model))
    return systems


def _tested(folder: Path, source: Sequence[str]) -> list[str] | None:
    """Returns the test translations of a run; None if the run's test set has another source."""
    try:
        sentences = read_lines(folder / "test.source.txt")
        translations = read_lines(folder / "test.txt")
    except (OSError, UserError):
        return None
    is_same = sentences == list(source) and len(translations) == len(sentences)
    return translations if is_same else None


def _links(
    model: Translator, source: Sequence[str], reference: Sequence[str]
) -> list[list[str]] | None:
    """Returns, for each reference word, the source word with the greatest attention weight.

    The result has one list per sentence. Returns None for a model without attention.

    model: translator, which is forced to produce the reference
    source: source sentences
    reference: reference translation of each sentence
    """
    if not model.attends:
        return None
    links: list[list[str]] = [[] for _ in source]
    numbers = [i for i in range(len(source)) if words(source[i]) and words(reference[i])]
    # Empty lines have no attention.
    maps = model.forced_maps([source[i] for i in numbers], [reference[i] for i in numbers])
    for i, attention in zip(numbers, maps, strict=True):
        # The row and the column of </s> are removed.
        rows = len(attention.target) - attention.ends
        columns = len(attention.source) - attention.ends
        weights = np.asarray(attention.total)[:rows, :columns]
        if weights.size:
            links[i] = [attention.source[column] for column in weights.argmax(1).tolist()]
    return links


def _example(systems: Sequence[System], number: int, comparison: Comparison) -> Example:
    """Returns an example sentence, with attention maps and log-probabilities from each model."""
    texts = {system.name: system.lines[number] for system in systems}
    sentence = None if comparison.source is None else comparison.source[number]
    log_probs = {}
    maps = {}
    for system in systems:
        model = system.model
        if model is None or sentence is None or not words(sentence):
            continue
        # Each model scores the translations of all systems.
        tokens = model.tokenizer.encode_target(list(texts.values()))
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


def _examples(comparison: Comparison, systems: Sequence[System], count: int) -> list[Example]:
    """Returns examples of the sentences in which the systems' translations differ most."""
    numbers = most_different(comparison, count)
    examples = []
    with Progress("explaining sentences", len(numbers), "sentences") as step:
        for number in numbers:
            examples.append(_example(systems, number, comparison))
            step()
    return examples


def _write(comparison: Comparison, examples: Sequence[Example], output: str) -> None:
    """Writes the comparison as .md, .json, .tex and .html files, and prints the tables."""
    tables = comparison.tables()
    lead = of_comparison(comparison, tables)
    markdown_texts = [*map("{}\n".format, lead), *map(markdown, tables)]
    files = {
        ".md": "\n".join([*markdown_texts, examples_as_markdown(examples)]).encode(),
        ".json": _as_json(lead, tables, examples).encode(),
        ".tex": "\n".join(map(latex, tables)).encode(),
        ".html": _page(lead, tables, examples, comparison),
    }
    for ending, content in files.items():
        write_atomically(Path(output + ending), content)
    # Print after writing the files, because a reader may close the pipe early.
    for text in (*map(terminal_lines, lead), *map(terminal, tables)):
        sys.stdout.write(f"{text}\n")
    log.info("wrote %s", ", ".join(output + ending for ending in files))


def _warn_of_tokenised_text(systems: Sequence[System], metric: Metric) -> None:
    """Logs a single warning for tokenised translations, instead of sacreBLEU's warning at each
    score.
    """
    # SacreBLEU's warning does not name the system.
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    for system in systems:
        count = sum(line.endswith(" .") for line in system.lines)
        if count >= TOKENISED_LINES and metric.tokenize != "none":
            log.warning(
                "%s: the text seems to be tokenised (%s lines end in ' .'); give detokenised text, "
                "or set metric.tokenize=none",
                system.name,
                f"{count:,}",
            )
            return


def _as_json(
    lead: Sequence[str], tables: Sequence[ReportTable], examples: Sequence[Example]
) -> str:
    keys = ("title", "head", "rows", "note")
    values = {
        "summary": list(lead),
        "tables": [{key: getattr(table, key) for key in keys} for table in tables],
        "sentences": [example.as_json() for example in examples],
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


def _page(
    lead: Sequence[str],
    tables: Sequence[ReportTable],
    examples: Sequence[Example],
    comparison: Comparison,
) -> bytes:
    first, *others = map(page_table, tables)
    sections = [*map(section, examples)]
    text = render("comparison", first=first, others=others, examples=sections, title=EXAMPLES)
    count = len(comparison.outputs)
    note = f"{len(comparison.reference):,} sentences, {count} system{'s' if count > 1 else ''}."
    titles = [*(table.title for table in tables), *([EXAMPLES] if examples else [])]
    return page("Comparison", note, [text], lead=lead, contents=titles, facts=origin())
