"""Evaluation of a model on a test set (nmt.evaluate)."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from nmt.data.lines import read_aligned
from nmt.foundation.errors import UserError
from nmt.inference.output_formats import one_line
from nmt.inference.output_sinks import open_sink
from nmt.inference.translator import Translator
from nmt.metric import Metric, Result

log = logging.getLogger(__name__)


def evaluate_file(
    load: Callable[[], Translator],
    metric: Metric,
    *,
    source: str,
    references: Sequence[str],
    output: str | None,
) -> float:
    """Translates a file and prints `name score signature` for each metric.

    Returns the score of `metric`.

    load: function that returns the translator
    metric: metric whose score is returned; its options, such as `lowercase`, apply to all metrics
    source: file of source sentences
    references: files with one reference per sentence
    output: file for the translations; None writes no file

    Raises UserError if the files are empty or not aligned.
    """
    if source in references:
        raise UserError(
            f"reference={source}: this file is also the source file. If a table contains both "
            "texts, write each column to a separate file"
        )
    sentences, *reference_lines = read_aligned(source, *references)
    if not sentences:
        raise UserError(f"{source}: the file is empty")
    translator = load()
    # The extension of a file may name the other language of the model.
    from_language, to_language = translator.languages
    opposites = {source: to_language, **dict.fromkeys(references, from_language)}
    for file, language in opposites.items():
        if f".{language}" in Path(file).suffixes and from_language != to_language:
            log.warning(
                "%s: the file extension names the wrong language; the model translates from %s to "
                "%s",
                file,
                from_language,
                to_language,
            )
    with open_sink(output) if output else contextlib.nullcontext() as sink:
        hypotheses, scores = scores_of(translator, metric, sentences, reference_lines)
        if sink is not None:
            sink.write(hypotheses)
    for name, result in scores.items():
        print(f"{name:6}{result.score:7.2f}   {result.signature}")
    return scores[metric.name].score


def translations(translator: Translator, sentences: Sequence[str]) -> list[str]:
    """Returns the translation of each sentence, without line breaks."""
    return [one_line(text) for text in translator.translate(sentences)]


def scores_of(
    translator: Translator,
    metric: Metric,
    sentences: Sequence[str],
    references: Sequence[Sequence[str]],
) -> tuple[list[str], dict[str, Result]]:
    """Translates sentences; returns the translations, and scores by metric name.

    translator: translator to evaluate
    metric: metric options, such as `lowercase`
    sentences: source sentences
    references: sets of references, each with one reference per sentence
    """
    metric = metric.of(translator.languages[1], references[0])
    hypotheses = translations(translator, sentences)
    return hypotheses, metric.score(
        hypotheses,
        references[0],
        ter=True,
        others=references[1:],
        orders=translator.tokenizer.columns.picture,
    )
