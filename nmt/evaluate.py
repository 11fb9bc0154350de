"""python -m nmt.evaluate model=RUN_DIR source=FILE reference=FILE

Translates the source and compares with the reference: BLEU, chrF, TER and exact match with sacreBLEU's signatures.
"""

from __future__ import annotations

from typing import Any

from nmt.configuration.command_line import command_line


def check(config: dict[str, Any]) -> None:
    """Raises UserError listing everything that is wrong with the configuration."""
    from nmt.configuration.settings import check

    check(config, "evaluate")


def run(config: dict[str, Any]) -> float:
    """Prints one line a metric, `name score signature`, on stdout; returns the score of the chosen metric."""
    from pathlib import Path

    from nmt.configuration.allocator import keep_freed_memory
    from nmt.configuration.settings import load_translator
    from nmt.storage.checkpoint import write_atomically
    from nmt.data.text import check_aligned, find, read_lines
    from nmt.foundation.errors import UserError
    from nmt.inference.formats import one_line
    from nmt.metric import Metric
    from nmt.training.progress import set_up_logging

    set_up_logging()
    keep_freed_memory()
    metric = Metric(**config["metric"])
    files = [find(config["source"]), find(config["reference"])]
    source, reference = (read_lines(file) for file in files)
    check_aligned(files[0], len(source), files[1], len(reference))
    if not source:
        raise UserError(f"{files[0]}: it is empty")
    hypotheses = [one_line(text) for text in load_translator(config).translate(source)]
    if config["output"]:
        write_atomically(Path(config["output"]), "".join(text + "\n" for text in hypotheses).encode())
    scores = metric.score(hypotheses, reference, ter=True)
    for name, result in scores.items():
        print(f"{name:6}{result.score:7.2f}   {result.signature}")
    return scores[metric.name].score


main = command_line("evaluate", check, run)

if __name__ == "__main__":
    main()
