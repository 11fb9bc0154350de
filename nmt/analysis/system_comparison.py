"""Comparison of systems from files: tables, examples, and a page."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from nmt.analysis.comparison import Comparison
from nmt.analysis.examples import Example, most_different, section
from nmt.analysis.examples import markdown as examples_as_markdown
from nmt.analysis.systems import System, aligned, example, systems_of
from nmt.analysis.tables import ReportTable, markdown, page_table, terminal
from nmt.analysis.word_statistics import tokens
from nmt.data.lines import check_aligned, find_file, read_lines
from nmt.drawing.pages import page
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.inference.translator import Translator
from nmt.metric import Metric
from nmt.storage.files import write_atomically

log = logging.getLogger(__name__)
TOKENISED_LINES = 100
"""Lines with a separate full stop at the end from which a text counts as tokenised, as for
sacreBLEU."""
HEADING = (
    "<h2>Sentences that differ most</h2>"
    "<p class=note>Marked: words that the reference does not have there.</p>"
)


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
    """Prints the tables, and writes OUTPUT.md, OUTPUT.json and OUTPUT.html.

    load, metric: returns the translator of a path; options of the metrics
    systems: run directories and checkpoints, which translate, or files of translations
    reference, source: files with a line for each sentence; models need the source
    train: file in whose text words are counted; None: the reference
    output, examples: path of the files without their ending; number of sentences shown
    samples, trials: bootstrap samples and randomisation trials of the significance tests

    Raises UserError if the texts do not belong together.
    """
    reference_file = find_file(reference)
    reference_lines = read_lines(reference_file)
    if not reference_lines:
        raise UserError(f"{reference_file}: is empty")
    source_lines = read_lines(find_file(source)) if source else None
    if source and source_lines is not None:
        check_aligned(find_file(source), len(source_lines), reference_file, len(reference_lines))
    compared = systems_of(systems, source_lines, (reference_file, reference_lines), load)
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
        links=aligned(trained[0], source_lines or [], reference_lines) if has_links else None,
        samples=samples,
        trials=trials,
    )
    _write(comparison, _examples(comparison, compared, examples), output)


def _examples(comparison: Comparison, systems: Sequence[System], count: int) -> list[Example]:
    """Sentences in which the systems differ most."""
    numbers = most_different(comparison, count)
    examples = []
    with Progress("explaining sentences", len(numbers), "sentences") as step:
        for number in numbers:
            examples.append(example(systems, number, comparison))
            step()
    return examples


def _write(comparison: Comparison, examples: Sequence[Example], output: str) -> None:
    """Writes the files, and prints the tables."""
    tables = comparison.tables()
    files = {
        ".md": "\n".join([*map(markdown, tables), examples_as_markdown(examples)]).encode(),
        ".json": _as_json(tables, examples).encode(),
        ".html": _page(tables, examples, comparison),
    }
    for ending, content in files.items():
        write_atomically(Path(output + ending), content)
    # After the files: a reader may close the pipe early.
    for table in tables:
        sys.stdout.write(terminal(table) + "\n")
    log.info("written: %s", ", ".join(output + ending for ending in files))


def _warn_of_tokenised_text(systems: Sequence[System], metric: Metric) -> None:
    """Warns once of translations that look tokenised, in place of sacreBLEU's warnings at each
    score."""
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    for system in systems:
        count = sum(line.endswith(" .") for line in system.lines)
        if count >= TOKENISED_LINES and metric.tokenize != "none":
            log.warning(
                "%s: %s lines end in ' .', as tokenised text does: give detokenised text, "
                "or metric.tokenize=none to compare it as it is",
                system.name,
                f"{count:,}",
            )
            return


def _as_json(tables: Sequence[ReportTable], examples: Sequence[Example]) -> str:
    values = {
        "tables": [
            {
                "title": table.title,
                "head": list(table.head),
                "rows": [list(row) for row in table.rows],
                "note": table.note,
            }
            for table in tables
        ],
        "sentences": [example.as_json() for example in examples],
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


def _page(
    tables: Sequence[ReportTable], examples: Sequence[Example], comparison: Comparison
) -> bytes:
    first, *others = [page_table(table) for table in tables]
    parts = [first, f"<div class=beside>{''.join(others)}</div>", HEADING if examples else ""]
    parts += [section(example) for example in examples]
    note = f"{len(comparison.reference):,} sentences, {len(comparison.outputs)} systems."
    return page("Comparison", note, "\n".join(parts))
