"""Scoring of given translations by their log-probabilities under a model."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from nmt.data.lines import batched
from nmt.data.text_encoding import Errors
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.foundation.ranks import Ranks
from nmt.inference.input_lines import CHUNK
from nmt.inference.output_formats import decoding_record
from nmt.inference.shared_output import sink_of
from nmt.inference.text_input import TextInput, count_aligned, find_input
from nmt.inference.translation import ForcedDecoding, perplexity
from nmt.inference.translator import Translator
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)
NBEST_LINE = re.compile(
    r"\s*(?P<number>\d{1,15})\s*\|\|\|"
    r"\s*(?P<text>.*?)\s*\|\|\|"
    r"\s*(?P<features>((?!\|\|\|).)*?)\s*"
    r"(\|\|\|\s*[-+.\deinfaEINFA]+\s*)?"  # total score of the hypothesis
    r"(\|\|\|[-=,\d\s]*)*",  # segmentation and word alignment of the hypothesis
)
"""Regular expression for a line of an n-best list in Moses format. The hypothesis may contain |||.
"""


@dataclass(frozen=True)
class ScoredPair:
    """A source sentence and its translation.

    source: source sentence
    target: translation
    nbest_entry: number, text and features of an n-best list entry, without the score; None if the
        pair is not from an n-best list
    """

    source: str
    target: str
    nbest_entry: str | None = None


def score_files(
    load: Callable[[], Translator],
    *,
    ranks: Ranks,
    source: str,
    target: str | None,
    nbest: str | None,
    errors: Errors,
    output: str | None,
    work: Mapping[str, str],
    format: Literal["text", "jsonl"],
    normalize: Literal["none", "average"],
) -> float:
    """Writes the log-probability of each translation. Returns the perplexity of all translations.

    load: function that returns the translator
    ranks: processes (ranks) that share the work
    source: file of source sentences, one per line
    target: file of translations, one per line; None to score `nbest`
    nbest: file with an n-best list in Moses format; None to score `target`
    errors: handling of lines that are not UTF-8
    output: output file; None writes to stdout
    work: names and hashes of everything that the output depends on
    format: `text` for log-probabilities, `jsonl` for JSON objects; n-best lists keep their format
    normalize: `average` divides by the number of tokens, </s> included; `none` writes the sum

    Raises UserError if the files are empty or do not match, e.g. in their number of lines.
    """
    texts = find_input(source), find_input(str(target or nbest))
    pairs_of = _aligned if target else _of_list
    # A first pass reports errors in the files before any output is written.
    count = sum(1 for _ in pairs_of(*texts, errors))
    if not count:
        raise UserError(f"source={source}: the file is empty")
    translator = load()
    texts[0].require(translator.check_scored_line, errors)
    step = Progress("scoring", count // ranks.count, "lines")
    with sink_of(ranks, output, count, work=work) as sink, step:
        for chunk in sink.own(batched(pairs_of(*texts, errors), CHUNK)):
            sources = translator.encode([pair.source for pair in chunk])
            targets = translator.tokenizer.encode_target([pair.target for pair in chunk])
            results = translator.force(sources, targets, attention=False, progress=step)
            rows = zip(chunk, targets, results, strict=True)
            sink.write([_line(translator.tokenizer, *row, format, normalize) for row in rows])
            token_count = sum(len(result.log_probs) for result in results)
            sink.add(sum(result.log_prob for result in results), token_count)
    total, tokens = sink.sums or (0.0, 0)
    mean = perplexity(total, int(tokens))
    log.info("log-probability %.2f (%s tokens), perplexity %.3f", total, f"{tokens:,.0f}", mean)
    return mean


def _line(
    tokenizer: Tokenizer,
    candidate: ScoredPair,
    target: list[int],
    result: ForcedDecoding,
    format: str,
    normalize: str,
) -> str:
    """Returns the output line with the score of one translation."""
    log_prob = result.log_prob
    if candidate.nbest_entry is not None:
        return f"{candidate.nbest_entry} nmt= {log_prob:.6f} ||| {log_prob:.6f}"
    if format == "text":
        length = len(result.log_probs) if normalize == "average" else 1
        return f"{log_prob / length:.6f}"
    return json.dumps(decoding_record(tokenizer, target, result), ensure_ascii=False)


def _aligned(source: TextInput, target: TextInput, errors: Errors) -> Iterator[ScoredPair]:
    """Yields the sentence pairs of two files. Raises UserError if the numbers of lines
    differ."""
    count_aligned(source, target, errors)
    yield from map(ScoredPair, source.lines(errors), target.lines(errors))


def _of_list(source: TextInput, nbest: TextInput, errors: Errors) -> Iterator[ScoredPair]:
    """Yields the hypotheses of an n-best list, each with its source sentence.

    Raises UserError if the list is empty, or its sentence numbers do not ascend.
    """
    sentences = enumerate(source.lines(errors))
    last_number = -1
    line_number = 0
    for line_number, line in enumerate(nbest.lines(errors), 1):
        place = f"{nbest}, line {line_number:,}"
        fields = NBEST_LINE.fullmatch(line)
        if fields is None:
            raise UserError(f"{place}: expected `number ||| translation ||| features [||| score]`")
        number = int(fields["number"])
        if number < last_number:
            raise UserError(
                f"{place}: sentence {number} follows sentence {last_number}; sort the n-best "
                "list by sentence number"
            )
        while last_number < number:
            try:
                last_number, sentence = next(sentences)
            except StopIteration:
                problem = f"but {source} has only {last_number + 1:,} lines, numbered from 0"
                raise UserError(f"{place}: sentence {number}, {problem}") from None
        entry = f"{number} ||| {fields['text']} ||| {fields['features']}"
        yield ScoredPair(sentence, fields["text"], entry)
    if not line_number:
        raise UserError(f"{nbest}: the n-best list is empty")
