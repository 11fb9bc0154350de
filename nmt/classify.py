"""python -m nmt.classify data=tsv data.train=FILE data.validation=FILE data.text=text data.label=label run_dir=OUT
python -m nmt.classify resume=RUN_DIR                       goes on where a run stopped
python -m nmt.classify model=RUN_DIR [input=FILE] [output=FILE] [explain=page.html]

The first two train. The third answers: one line out for every line in, in order; without input=, stdin as it arrives.
"""

from __future__ import annotations

from typing import Any

from nmt.configuration.command_line import command_line


def check(config: dict[str, Any]) -> None:
    """Raises UserError listing everything that is wrong with the configuration."""
    from nmt.configuration import build
    from nmt.configuration.settings import check_answering
    from nmt.configuration.check import locate
    from nmt.foundation.errors import UserError

    if isinstance(config.get("model"), str):
        check_answering(config)
    elif not config.get("resume"):
        if not hasattr(locate(config["data"]["_target_"], "nmt.data", "data"), "labelled"):
            raise UserError("data: this data set has no labels; choose data=tsv, csv, jsonl, parquet or hub")
        build.check(config, build.CLASSIFICATION)


def run(config: dict[str, Any]) -> float | None:
    """Trains, and returns the test score of the chosen metric; or answers."""
    if config["model"] is not None:
        _answer(config)
        return None
    from nmt.training import run as training
    from nmt.task.classification import Classification

    return training.command(Classification, config)


def _answer(config: dict[str, Any]) -> None:
    import json
    from pathlib import Path

    from hydra.core.hydra_config import HydraConfig

    from nmt.inference import streams
    from nmt.configuration.allocator import keep_freed_memory
    from nmt.configuration.settings import ANSWERING
    from nmt.foundation.errors import UserError
    from nmt.report.explanation import as_json, write_explanations
    from nmt.training.progress import set_up_logging
    from nmt.inference.text_classifier import TextClassifier

    foreign = [text for text in HydraConfig.get().overrides.task if text.partition("=")[0] not in ANSWERING]
    if foreign:
        raise UserError(f"{', '.join(foreign)}: for training only; with model= there are {', '.join(ANSWERING)}")
    set_up_logging()
    keep_freed_memory()
    source, sink = streams.Source(config["input"], config["errors"]), streams.Sink(config["output"])
    classifier = TextClassifier.load(config["model"], config["device"])
    show = config["explain"]
    if show and not classifier.attends:
        raise UserError(f"explain={show}: this model has no importances to show (pooling=last)")
    seen = []
    with sink as write:
        for chunk in source.chunks():
            answers = classifier.classify(chunk.lines)
            if config["format"] == "jsonl":
                write([json.dumps(as_json(answer), ensure_ascii=False) for answer in answers])
            else:
                write([",".join(answer.labels) for answer in answers])
            if show:
                seen += answers
    if show:
        write_explanations(seen, Path(show))


main = command_line("classify", check, run)

if __name__ == "__main__":
    main()
