"""Comparison of systems (nmt.compare): models, which translate, and files of translations."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nmt.analysis.comparison import Comparison
from nmt.analysis.comparison_summary import summary
from nmt.analysis.comparison_tables import comparison_tables
from nmt.analysis.evaluation import translations
from nmt.analysis.example_sentences import (
    EXAMPLES,
    Example,
    example_section,
    example_sentences,
    examples_markdown,
)
from nmt.analysis.tables import ReportTable, latex, markdown, page_table, terminal
from nmt.analysis.word_statistics import tokens
from nmt.data import unique_suffixes
from nmt.data.lines import find_file, read_aligned, read_lines
from nmt.drawing.pages import origin, page, render
from nmt.foundation.errors import UsageError, UserError
from nmt.inference.file_alignment import word_links
from nmt.inference.translator import Translator
from nmt.metric import Metric
from nmt.storage.checkpoint import HUB
from nmt.storage.files import check_base_name, read_json_object, write_atomically
from nmt.storage.metrics_file import is_outdated
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)
TOKENISED_LINES = 100
"""Number of lines ending with a space and a full stop from which a text counts as tokenised.

sacreBLEU warns about tokenised text from the same number of lines.
"""


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
    systems: models (run folders or checkpoints) that translate `source`, or translations (files)
    reference: file with one reference per sentence
    source: file with the source sentences, required if `systems` has models; None if unknown
    train: file in which word frequencies are counted; None for the reference file
    output: path of the output files without suffix
    examples, samples, trials: numbers of example sentences, bootstrap samples and random trials

    Raises UserError if files are missing, empty or not aligned, or if a model has no source.
    """
    check_base_name(Path(output))
    lines = _read_files(systems, reference, source)
    source_lines = lines[source] if source else []
    names = dict(zip(systems, unique_suffixes(systems), strict=True))
    models = {name: load(path) for path, name in names.items() if path not in lines}
    outputs = {
        name: lines.get(path) or _translations(models[name], Path(path), source_lines)
        for path, name in names.items()
    }
    _warn_of_tokenised_text(outputs, metric)
    counted = read_lines(find_file(train)) if train else lines[reference]
    language = next((model.languages[1] for model in models.values()), "")
    comparison = Comparison(
        source=source_lines,
        reference=lines[reference],
        outputs=outputs,
        metric=metric.of(language, lines[reference]),
        counts=Counter(token for line in counted for token in tokens(line)),
        counted=train or "the reference",
        links=_links([*models.values()], source_lines, lines[reference]),
        samples=samples,
        trials=trials,
    )
    _write(comparison, example_sentences(comparison, models, examples), Path(output))


def _read_files(systems: Sequence[str], reference: str, source: str | None) -> dict[str, list[str]]:
    """Returns the lines of the source, the reference and the files of translations, by path.

    Raises UserError if a file is missing or empty, if files differ in length, or if a model has no
    source.
    """
    models = [
        path
        for path in systems
        if Path(path).is_dir() or path.endswith(".safetensors") or path.startswith(HUB)
    ]
    if models and source is None:
        raise UsageError(f"{models[0]}: this model needs a text to translate; add source=FILE")
    files = [*([source] if source else []), reference, *(p for p in systems if p not in models)]
    lines = dict(zip(files, read_aligned(*files), strict=True))
    if not lines[reference]:
        raise UserError(f"{reference}: the file is empty")
    return lines


def _translations(model: Translator, run: Path, source: Sequence[str]) -> list[str]:
    """Returns the saved test translations of a run if the source sentences of its test set equal
    `source`, and the run was not trained further since its test. Otherwise, translates `source`
    with the model."""
    files = [run / "test.source.txt", run / "test.txt"]
    results = read_json_object(run / "results.json")
    is_current = results.get("part") == "test" and not is_outdated(run, results.get("updates", 0))
    if is_current and all(file.is_file() for file in files):
        sentences, tested = map(read_lines, files)
        if sentences == source and len(tested) == len(source):
            return tested
    return translations(model, source)


def _links(
    models: Sequence[Translator], source: Sequence[str], reference: Sequence[str]
) -> dict[int, list[tuple[str, str]]]:
    """Returns pairs (reference word, source word with the largest attention weight), by sentence
    index.

    The attention is that of the first model in forced decoding of the reference. The result is
    empty if there is no model, or if the first model has no attention or reads only images.

    models: translators of the compared systems
    source: source sentences
    reference: reference translation of each sentence
    """
    if not models or not models[0].attends or not models[0].tokenizer.columns.sources:
        return {}
    # Empty lines have no attention.
    numbers = [i for i in range(len(source)) if words(source[i]) and words(reference[i])]
    maps = models[0].forced_maps([source[i] for i in numbers], [reference[i] for i in numbers])
    return {
        i: [(weights.target[t], weights.source[s]) for s, t in word_links(weights)]
        for i, weights in zip(numbers, maps, strict=True)
    }


def _write(comparison: Comparison, examples: Sequence[Example], base: Path) -> None:
    """Writes the comparison as .md, .json, .tex and .html files, and prints the tables."""
    tables = comparison_tables(comparison)
    lead = summary(comparison, tables)
    markdown_texts = [*map("{}\n".format, lead), *map(markdown, tables)]
    keys = ("title", "head", "rows", "note")
    values = {
        "summary": lead,
        "tables": [{key: getattr(table, key) for key in keys} for table in tables],
        "sentences": [example.as_json() for example in examples],
    }
    files = {
        ".md": "\n".join([*markdown_texts, examples_markdown(examples)]).encode(),
        ".json": (json.dumps(values, ensure_ascii=False, indent=1) + "\n").encode(),
        ".tex": "\n".join(map(latex, tables)).encode(),
        ".html": _page(lead, tables, examples, comparison),
    }
    for ending, content in files.items():
        write_atomically(base.with_name(base.name + ending), content)
    # Print after writing the files, because a reader may close the pipe early.
    print(*lead, *map(terminal, tables), sep="\n")
    log.info("wrote %s", ", ".join(f"{base}{ending}" for ending in files))


def _warn_of_tokenised_text(outputs: Mapping[str, Sequence[str]], metric: Metric) -> None:
    """Logs a single warning for tokenised translations, instead of sacreBLEU's warning at each
    score.

    outputs: translations of each system, by name
    """
    # SacreBLEU's warning does not name the system.
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    counts = {name: sum(line.endswith(" .") for line in lines) for name, lines in outputs.items()}
    name = max(counts, key=counts.__getitem__)
    if counts[name] >= TOKENISED_LINES and metric.tokenize != "none":
        log.warning(
            "%s: the text seems to be tokenised (%s lines end in ' .'); give detokenised text, "
            "or set metric.tokenize=none",
            name,
            f"{counts[name]:,}",
        )


def _page(
    lead: Sequence[str],
    tables: Sequence[ReportTable],
    examples: Sequence[Example],
    comparison: Comparison,
) -> bytes:
    first, *others = map(page_table, tables)
    text = render(
        "comparison",
        first=first,
        others=others,
        examples=[*map(example_section, examples)],
        title=EXAMPLES,
    )
    count = len(comparison.outputs)
    note = f"{len(comparison.reference):,} sentences, {count} system{'s' if count > 1 else ''}."
    titles = [*(table.title for table in tables), *([EXAMPLES] if examples else [])]
    return page("Comparison", note, [text], lead=lead, contents=titles, facts=origin())
