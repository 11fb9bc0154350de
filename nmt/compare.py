"""python -m nmt.compare reference=FILE source=FILE A B …

What translations of the same text have in common and in what they differ. A, B: run directories, models, or files that any
system has written. Tables on the terminal, and NAME.md, NAME.json and a page NAME.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.analysis_settings import CompareSettings


def run(settings: CompareSettings) -> None:
    """Prints the tables and writes the files. Raises UserError if texts do not belong together."""
    import json
    import logging
    import sys
    from collections import Counter
    from pathlib import Path

    from nmt.analysis.comparison import Comparison
    from nmt.analysis.examples import markdown, most_different, section
    from nmt.analysis.systems import aligned, example, systems_of
    from nmt.analysis.tables import markdown as as_markdown
    from nmt.analysis.tables import page_table, terminal
    from nmt.data.lines import check_aligned, find_file, read_lines
    from nmt.drawing.pages import page
    from nmt.foundation.errors import UserError
    from nmt.foundation.progress import Progress
    from nmt.loading import translator
    from nmt.metric import Metric
    from nmt.storage.files import write_atomically
    from nmt.tokenizer.words import words

    log = logging.getLogger("nmt.compare")
    file = find_file(settings.reference)
    reference = read_lines(file)
    if not reference:
        raise UserError(f"{file}: it is empty")
    source = None
    if settings.source:
        source = read_lines(find_file(settings.source))
        check_aligned(find_file(settings.source), len(source), file, len(reference))
    systems = systems_of(
        settings.systems,
        source,
        (file, reference),
        lambda path: translator(path, device=settings.device),
    )
    models = [system.model for system in systems if system.model is not None]
    language = models[0].languages[1] if models else ""
    counted = read_lines(find_file(settings.train)) if settings.train else reference
    compared = Comparison(
        source,
        reference,
        {system.name: system.lines for system in systems},
        Metric(**settings.metric).of(language),
        Counter(word for line in counted for word in words(line)),
        settings.train or "the reference",
        aligned(models[0], source, reference) if models and source is not None else None,
    )
    compared.test(settings.samples, settings.trials)
    tables = compared.tables()
    places, scores, examples = (
        most_different(compared, settings.examples),
        compared.sentence_scores(),
        [],
    )
    with Progress("looking at sentences", len(places), "sentences") as step:
        for place in places:
            examples.append(example(systems, place, source, reference, scores))
            step()
    base = Path(settings.output)
    text = {
        ".md": "\n".join([*map(as_markdown, tables), markdown(examples)]),
        ".json": json.dumps({
            "tables": [{"title": t.title, "head": [*t.head], "rows": [*map(list, t.rows)], "note": t.note} for t in tables],
            "sentences": [each.as_json() for each in examples],
        }, ensure_ascii=False, indent=1) + "\n",
    }  # fmt: skip
    for ending, written in text.items():
        write_atomically(base.with_name(base.name + ending), written.encode())
    first, *others = [page_table(table) for table in tables]
    shown = [first, f"<div class=beside>{''.join(others)}</div>"]
    heading = "<h2>Sentences that differ most</h2><p class=note>Marked: words that the reference does not have there.</p>"
    note = f"{len(reference):,} sentences, {len(systems)} systems."
    write_atomically(
        base.with_name(base.name + ".html"),
        page(
            "Comparison",
            note,
            "\n".join([*shown, heading if examples else "", *map(section, examples)]),
        ),
    )
    for table in tables:  # after the files: a reader may close the pipe early
        sys.stdout.write(terminal(table) + "\n")
    log.info("written: %s", ", ".join(f"{base}{ending}" for ending in (".md", ".json", ".html")))


main = command_line("compare", run)

if __name__ == "__main__":
    main()
