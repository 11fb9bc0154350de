"""Probabilities of given translations under a model."""

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from nmt.data.lines import Errors, check_aligned, find_file, stream_lines
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.inference.input_lines import CHUNK
from nmt.inference.output_sinks import open_sink
from nmt.inference.translation import ForcedDecoding
from nmt.inference.translator import Translator

log = logging.getLogger(__name__)
NBEST_LINE = re.compile(
    r"\s*(?P<number>\d{1,15})\s*\|\|\|"
    r"\s*(?P<text>.*?)\s*\|\|\|"
    r"\s*(?P<features>((?!\|\|\|).)*?)\s*"
    r"(\|\|\|\s*[-+.\deinfa]+\s*)?"  # score
    r"(\|\|\|[-=\d\s]*)?",  # word alignment
)
"""Line of an n-best list; its text may contain |||: the fields after it are matched from the end."""
LARGEST_EXPONENT = 700.0
"""Nats per token up to which a perplexity is finite."""


@dataclass(frozen=True)
class ScoredPair:
    """A sentence and its translation; of an n-best list also the list's number and features."""

    source: str
    target: str
    number: int = 0
    features: str = ""


def score_files(
    load: Callable[[], Translator],
    *,
    source: str,
    target: str | None,
    nbest: str | None,
    output: str | None,
    work: Mapping[str, str],
    format: Literal["text", "jsonl"],
    normalize: Literal["none", "average"],
    errors: Errors,
) -> float:
    """Writes the log-probability of each translation, and returns the perplexity of all.

    load: returns the translator
    source: file of sentences
    target: file with a translation of each sentence, or None
    nbest: n-best list of the sentences in Moses format, or None
    output: file; None: stdout
    work: names and hashes of everything that the output depends on
    format: `text`, one number per line, or `jsonl`, with the tokens; n-best lists keep theirs
    normalize: `average` divides by the number of tokens
    errors: treatment of lines that are not UTF-8

    Raises UserError if the files do not belong together.
    """
    source_file = find_file(source)
    target_file = find_file(str(target or nbest))
    source_count = sum(1 for _ in stream_lines(source_file, errors))
    target_count = sum(1 for _ in stream_lines(target_file, errors))
    if target:
        check_aligned(source_file, source_count, target_file, target_count)
        pairs = _aligned_pairs(source_file, target_file, errors)
    elif target_count == 0:
        raise UserError(f"{target_file}: it is empty")
    else:
        for _ in _nbest_pairs(
            source_file, target_file, errors, source_count
        ):  # errors come before any output
            pass
        pairs = _nbest_pairs(source_file, target_file, errors, source_count)
    translator = load()
    total = 0.0
    tokens = 0
    with (
        open_sink(output, work=work) as sink,
        Progress("scoring", target_count, "lines") as step,
    ):
        while chunk := list(islice(pairs, CHUNK)):
            sources = translator.encode([pair.source for pair in chunk])
            targets = translator.tokenizer.encode_target([pair.target for pair in chunk])
            forced = translator.force(sources, targets, attention=False, progress=step)
            lines = []
            for pair, ids, result in zip(chunk, targets, forced, strict=True):
                total += result.log_prob
                tokens += len(result.log_probs)
                if nbest:
                    lines.append(_nbest_line(pair, result))
                elif format == "jsonl":
                    pieces = [*translator.tokenizer.target_pieces(ids), "</s>"]
                    lines.append(_json_line(pieces, result))
                else:
                    length = len(result.log_probs) if normalize == "average" else 1
                    lines.append(f"{result.log_prob / length:.6f}")
            sink.write(lines)
    perplexity = _perplexity(total, tokens) if tokens else float("nan")
    log.info("log-probability %.2f of %s tokens: perplexity %.3f", total, f"{tokens:,}", perplexity)
    return perplexity


def _perplexity(log_prob: float, tokens: int) -> float:
    return math.exp(min(-log_prob / tokens, LARGEST_EXPONENT))


def _nbest_line(pair: ScoredPair, result: ForcedDecoding) -> str:
    features = f"{pair.features} nmt= {result.log_prob:.6f}"
    return f"{pair.number} ||| {pair.target} ||| {features} ||| {result.log_prob:.6f}"


def _json_line(pieces: list[str], result: ForcedDecoding) -> str:
    values = {
        "log_prob": round(result.log_prob, 6),
        "perplexity": round(_perplexity(result.log_prob, len(result.log_probs)), 4),
        "tokens": pieces,
        "token_log_probs": [round(float(value), 6) for value in result.log_probs],
    }
    return json.dumps(values, ensure_ascii=False)


def _aligned_pairs(source: Path, target: Path, errors: Errors) -> Iterator[ScoredPair]:
    for texts in zip(stream_lines(source, errors), stream_lines(target, errors), strict=True):
        yield ScoredPair(*texts)


def _nbest_pairs(source: Path, nbest: Path, errors: Errors, count: int) -> Iterator[ScoredPair]:
    """Hypotheses of an n-best list, whose numbers must ascend, with their sentences.

    count: number of sentences
    """
    sentences = enumerate(stream_lines(source, errors))
    number, sentence = next(sentences, (-1, ""))
    for line_number, line in enumerate(stream_lines(nbest, errors), 1):
        place = f"{nbest}, line {line_number:,}"
        fields = NBEST_LINE.fullmatch(line)
        if fields is None:
            raise UserError(f"{place}: not `number ||| translation ||| features [||| score]`")
        next_number = int(fields["number"])
        if next_number >= count:
            raise UserError(
                f"{place}: sentence {next_number}, but there are only {count:,} source lines"
            )
        if next_number < number:
            raise UserError(f"{place}: sentence {next_number}, but numbers must ascend")
        while number < next_number:
            number, sentence = next(sentences)
        yield ScoredPair(sentence, fields["text"], number, fields["features"])
