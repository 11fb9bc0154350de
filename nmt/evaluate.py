"""python -m nmt.evaluate model=RUN_DIR source=FILE reference=FILE

Translates the source and compares with the reference, or with several, reference=[FILE,FILE]: BLEU, chrF, TER and exact
match with sacreBLEU's signatures; for captions of pictures also BLEU-1 to 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import EvaluateSettings


def run(settings: EvaluateSettings) -> float:
    """Prints one line per metric, `name score signature`, on stdout; returns the score of the chosen metric."""
    from pathlib import Path

    from nmt.data import as_list
    from nmt.data.lines import check_aligned, find_file, read_lines
    from nmt.foundation.errors import UserError
    from nmt.foundation.progress import Progress
    from nmt.inference.output_formats import one_line
    from nmt.loading import translator_for
    from nmt.metric import Metric
    from nmt.storage.files import write_atomically

    files = [find_file(settings.source), *(find_file(name) for name in as_list(settings.reference))]
    source, *references = (read_lines(file) for file in files)
    for file, lines in zip(files[1:], references, strict=True):
        check_aligned(files[0], len(source), file, len(lines))
    if not source:
        raise UserError(f"{files[0]}: it is empty")
    translator = translator_for(settings)
    metric = Metric(**settings.metric).of(translator.languages[1])
    with Progress("translating", len(source), "lines") as step:
        hypotheses = [one_line(text) for text in translator.translate(source, step)]
    if settings.output:
        write_atomically(
            Path(settings.output), "".join(text + "\n" for text in hypotheses).encode()
        )
    orders = translator.tokenizer.columns.picture
    scores = metric.score(hypotheses, references[0], ter=True, others=references[1:], orders=orders)
    for name, result in scores.items():
        print(f"{name:6}{result.score:7.2f}   {result.signature}")
    return scores[metric.name].score


main = command_line("evaluate", run)

if __name__ == "__main__":
    main()
