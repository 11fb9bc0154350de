"""Facts about a model for the first screen of its web page: network, training text, test scores,
and example sentences.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.data import as_list
from nmt.data.lines import read_lines
from nmt.data.parts import parse_part
from nmt.foundation.configurations import class_label
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK
from nmt.storage.checkpoint import Checkpoint, read_model, weights_hash
from nmt.storage.files import BEST, LAST, read_json_object
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import words

PARTS = ("encoder", "decoder", "attention", "window", "pooling")
"""Names of the configuration groups that describe a network."""
SIDES = ("src", "tgt", "trg")
"""Names of sides of a parallel text, some of which are also codes of rare languages."""
SCORES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "macro_f1": "macro-F1"}
"""Maps the names of metrics to their usual spelling, for the web page."""
EASY = 40
"""Preferred length in characters of the easy example sentence on the web page."""
LONG = 150
"""Preferred length in characters of the long example sentence on the web page."""
MOST_LINES = 1000
"""Number of test sentences from which the examples are chosen, so that choosing takes little
time."""


def test_results(saved: Checkpoint) -> dict[str, Any]:
    """Returns the test results of a run's best checkpoint, with valid scores only; empty for other
    checkpoints, and if the results are those of earlier weights of the run."""
    if saved.path.name != BEST:
        return {}
    results = read_json_object(saved.path.with_name("results.json"))
    if results.get("weights") not in (None, weights_hash(saved.part("model"))):
        return {}
    scores = results.get("scores")
    valid = {
        name: entry
        for name, entry in (scores.items() if isinstance(scores, dict) else ())
        if isinstance(entry, dict)
        and isinstance(entry.get("score"), int | float)
        and math.isfinite(entry["score"])
    }
    return {**results, "scores": valid}


def model_facts(path: str, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns facts about a model as JSON values, without facts that the run does not record.

    path: run folder, checkpoint file or name on the Hugging Face Hub
    tokenizer: tokenizer of the model

    The facts are:
    `network`: names of its parts
    `parameters`: number of parameters
    `training`: name of the training text
    `scores`: name and score of each metric
    `part`: scored part of the data, test or validation
    `examples`: kind and text of each example sentence
    """
    try:
        saved = read_model(path)
    except UserError:
        return {}
    config: Mapping[str, Any] = saved.meta.get("config") or {}
    results = test_results(saved)
    # Source sentences of the test or validation set
    files = (
        sorted(saved.path.parent.glob("*.source.txt")) if saved.path.name in (BEST, LAST) else []
    )
    lines = read_lines(files[0])[:MOST_LINES] if files else []
    facts = {
        "network": network_parts(config),
        "parameters": sum(tensor.numel() for tensor in saved.weights.values()),
        "training": _training_text(config.get("data") or {}),
        "scores": [
            {"name": SCORES[name], "score": entry["score"]}
            for name, entry in results.get("scores", {}).items()
            if name in SCORES
        ],
        "part": results.get("part"),
        "examples": examples(tokenizer, lines),
    }
    return {name: fact for name, fact in facts.items() if fact}


def examples(tokenizer: Tokenizer, lines: Sequence[str]) -> list[dict[str, str]]:
    """Returns up to three example sentences of the kinds `easy` (short), `long` and `unknown`.

    The sentence of the kind `unknown` is a short sentence with characters outside the model's
    vocabulary. If no short sentence has such characters, the short sentence that contains the word
    with the most subwords is chosen.

    tokenizer: tokenizer of the model
    lines: sentences to choose from
    """
    lines = [line.strip() for line in lines if line.strip()]
    if not lines:
        return []
    short = [line for line in lines if len(line) <= LONG / 2] or lines
    chosen = {
        "easy": _nearest(lines, EASY),
        "long": _nearest(lines, LONG),
        "unknown": max(short, key=lambda line: _hardest(tokenizer, line)),
    }
    # A sentence that is chosen twice is shown once.
    kinds = {text: kind for kind, text in reversed(chosen.items())}
    return [{"kind": kind, "text": text} for text, kind in reversed(kinds.items())]


def _nearest(lines: Sequence[str], length: int) -> str:
    return min(lines, key=lambda line: abs(len(line) - length))


def _hardest(tokenizer: Tokenizer, line: str) -> tuple[bool, int]:
    """Returns whether a line has unknown characters, and the number of subwords of the word with
    the most subwords."""
    ids_by_word = tokenizer.encode_source(words(line))
    has_unknown = any(UNK in ids for ids in ids_by_word)
    return has_unknown, max(map(len, ids_by_word), default=0)


def network_parts(config: Mapping[str, Any]) -> str:
    """Returns the names of the parts of a network, such as `bidirectional encoder, luong
    decoder`."""
    groups = {part: config[part] for part in PARTS if config.get(part)}
    labels = {part: class_label(group["_target_"], part) for part, group in groups.items()}
    # The choice window=window means attention without a window.
    names = [f"{label} {part}" for part, label in labels.items() if label != part]
    return ", ".join(names).replace("_", " ")


def _training_text(data: Mapping[str, Any]) -> str:
    """Returns the name of the training text: a data set, file names without folders, or the number
    of generated pairs."""
    if data.get("path"):
        return str(data["path"])
    train = data.get("train")
    if isinstance(train, int):
        return f"{train:,} generated sentence pairs"
    files = train if isinstance(train, list) else [train]
    names = [Path(str(file)).name for file in files if file]
    if not isinstance(train, list) and str(data.get("_target_", "")).endswith("TextFiles"):
        # The setting is the beginning of both file names, and may end in a range of lines.
        suffixes = [*as_list(data["source"]), data["target"]]
        names = [
            f"{prefix}.{suffix}@{rows}".removesuffix("@")
            for prefix, rows in map(parse_part, names)
            for suffix in suffixes
        ]
    return ", ".join(names)
