"""python -m nmt.label model=RUN_DIR [input=FILE] [output=FILE] [format=jsonl] [explain=page.html]

Labels texts with a model of nmt.classify: one line out for every line in, in order. Without input=, lines from stdin
are labelled as they arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import LabelSettings
    from nmt.drawing.word_importance import Classified


def run(settings: LabelSettings) -> None:
    """Labels a file or stdin."""
    import json
    from pathlib import Path

    from nmt.drawing.word_importance import as_json, write_explanations
    from nmt.foundation.errors import UserError
    from nmt.foundation.progress import Progress
    from nmt.inference.input_lines import InputLines
    from nmt.inference.output_sinks import open_sink
    from nmt.loading import text_classifier
    from nmt.pipeline.fingerprint import fingerprint

    source = InputLines(settings.input, settings.errors)
    classifier = text_classifier(settings.model, settings.device)
    show = settings.explain
    if show and not classifier.attends:
        raise UserError(f"explain={show}: this model has no importances to show (pooling=last)")
    seen: list[Classified] = []
    with (
        open_sink(settings.output, work=fingerprint(settings)) as sink,
        Progress("labelling", source.count if settings.input else 0, "lines") as step,
    ):
        for chunk in source.chunks():
            answers = classifier.classify(chunk.lines, settings.units)
            if settings.format == "jsonl":
                sink.write([json.dumps(as_json(answer), ensure_ascii=False) for answer in answers])
            else:
                sink.write([",".join(answer.labels) for answer in answers])
            seen += answers if show else ()
            if settings.output:  # not between lines that people read
                step(len(answers))
    if show:
        write_explanations(seen, Path(show))


main = command_line("label", run)

if __name__ == "__main__":
    main()
