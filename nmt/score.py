"""python -m nmt.score model=RUN_DIR source=FILE target=FILE [output=FILE] [format=jsonl] [normalize=average]

The probability of given translations under the model: one natural-log probability per line (</s> included), perplexity
on stderr. With nbest=FILE (Moses format) instead of target=FILE, the hypotheses of an n-best list are scored again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import ScoreSettings


def run(settings: ScoreSettings) -> float:
    """Scores all pairs; returns the perplexity."""
    import json
    import logging
    import math

    from nmt.data.lines import check_aligned, find_file, stream_lines
    from nmt.foundation.errors import UserError
    from nmt.foundation.progress import Progress
    from nmt.inference.output_sinks import open_sink
    from nmt.loading import translator_for
    from nmt.pipeline.fingerprint import fingerprint

    log = logging.getLogger("nmt.score")
    errors = settings.errors
    files = [find_file(settings.source), find_file(str(settings.target or settings.nbest))]
    counts = [sum(1 for _ in stream_lines(file, errors)) for file in files]
    if settings.target:
        check_aligned(files[0], counts[0], files[1], counts[1])
        pairs: Iterator[Any] = (
            (s, t, None) for s, t in zip(*(stream_lines(f, errors) for f in files), strict=True)
        )
    else:
        if counts[1] == 0:
            raise UserError(f"{files[1]}: it is empty")

        def of_list() -> Iterator[Any]:
            return _of_list(
                stream_lines(files[0], errors),
                stream_lines(files[1], errors),
                str(files[1]),
                counts[0],
            )

        for _ in of_list():  # what is wrong is said before anything is written
            pass
        pairs = of_list()
    translator = translator_for(settings)
    total, tokens = 0.0, 0
    work = fingerprint(settings)
    with (
        open_sink(settings.output, work=work) as sink,
        Progress("scoring", counts[1], "lines") as step,
    ):
        for chunk in _chunks(pairs):
            sources = translator.encode([source for source, _, _ in chunk])
            targets = translator.tokenizer.encode_target([target for _, target, _ in chunk])
            lines = []
            for (_, target, entry), ids, found in zip(
                chunk,
                targets,
                translator.force(sources, targets, attention=False, progress=step),
                strict=True,
            ):
                log_prob, length = found.log_prob, len(found.log_probs)
                total, tokens = total + log_prob, tokens + length
                if entry is not None:
                    number, features = entry
                    lines.append(
                        f"{number} ||| {target} ||| {features} nmt= {log_prob:.6f} ||| {log_prob:.6f}"
                    )
                elif settings.format == "jsonl":
                    lines.append(json.dumps({
                        "log_prob": round(log_prob, 6), "perplexity": round(math.exp(min(-log_prob / length, 700)), 4),
                        "tokens": [*translator.tokenizer.target_pieces(ids), "</s>"],
                        "token_log_probs": [round(float(value), 6) for value in found.log_probs],
                    }, ensure_ascii=False))  # fmt: skip
                else:
                    lines.append(
                        f"{log_prob / length if settings.normalize == 'average' else log_prob:.6f}"
                    )
            sink.write(lines)
    perplexity = math.exp(min(-total / tokens, 700)) if tokens else float("nan")
    log.info("log-probability %.2f of %s tokens: perplexity %.3f", total, f"{tokens:,}", perplexity)
    return perplexity


def _chunks(pairs: Iterator[Any]) -> Iterator[list[Any]]:
    from itertools import islice

    from nmt.inference.input_lines import CHUNK

    while chunk := list(islice(pairs, CHUNK)):
        yield chunk


def _of_list(
    sources: Iterator[str], entries: Iterator[str], name: str, count: int
) -> Iterator[Any]:
    """(source, hypothesis, (number, features)) of each line of an n-best list, whose numbers ascend."""
    from nmt.foundation.errors import UserError

    current, source = -1, ""
    for line_number, line in enumerate(entries, 1):
        fields = [field.strip() for field in line.split("|||")]
        if len(fields) < 3 or not fields[0].isdecimal() or len(fields[0]) > 15:
            raise UserError(
                f"{name}, line {line_number:,}: not `number ||| translation ||| features [||| score]`"
            )
        number = int(fields[0])
        if not current <= number < count:
            raise UserError(
                f"{name}, line {line_number:,}: sentence {number}, but "
                + (
                    f"there are only {count:,} source lines"
                    if number >= count
                    else "numbers must ascend"
                )
            )
        while current < number:
            current, source = current + 1, next(sources)
        yield source, fields[1], (number, fields[2])


main = command_line("score", run)

if __name__ == "__main__":
    main()
