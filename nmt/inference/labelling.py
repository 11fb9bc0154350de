"""Classification of the lines of a file or of stdin with a trained text classifier."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from nmt.drawing.word_importance import Classified, as_json, write_explanations
from nmt.foundation.errors import UsageError
from nmt.foundation.progress import Progress, log_speed
from nmt.inference.explanations.word_removal import write_effects
from nmt.inference.input_lines import InputLines
from nmt.inference.output_sinks import open_sink
from nmt.inference.text_classifier import TextClassifier
from nmt.tokenizer.words import Units


def label_file(
    load: Callable[[], TextClassifier],
    source: InputLines,
    *,
    output: str | None,
    work: Mapping[str, str],
    format: Literal["text", "jsonl"],
    explain: str | None,
    units: Units,
) -> None:
    """Writes the predicted labels of each input line.

    load: function that returns the classifier
    output: output file; None writes to stdout
    work: names and hashes of everything that the output depends on
    format: `text` for labels separated by commas, or `jsonl` for labels, probabilities and
        importances
    explain: HTML file for a plot of the word importances; None writes no plot
    units: units of the plot: words or subwords

    Raises UserError if `explain` is set and the classifier has no word importances.
    """
    drawn: list[Classified] = []
    with open_sink(output, work=work) as sink:
        classifier = load()
        if explain and not classifier.attends:
            raise UsageError(
                f"explain={explain}: the classifier has no word importances (pooling=last); leave "
                "explain out, or train a classifier with another pooling"
            )
        began = time.monotonic()
        # At a terminal, a progress bar would mix with the output lines.
        with Progress("labelling", source.count if output else 0, "lines") as step:
            for chunk in source.chunks():
                answers = classifier.classify(chunk.lines, units)
                if format == "jsonl":
                    lines = [json.dumps(as_json(answer), ensure_ascii=False) for answer in answers]
                else:
                    lines = [",".join(answer.labels) for answer in answers]
                sink.write(lines)
                if explain:
                    drawn += answers
                step(len(answers))
    if output:
        log_speed(step.done, "labelled", time.monotonic() - began, output)
    if explain and units == "word":
        write_effects(classifier, drawn, Path(explain))
    elif explain:  # hidden subwords would leave other words
        write_explanations(drawn, Path(explain))
