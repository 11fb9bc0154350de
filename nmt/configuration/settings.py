"""What the command lines that use a trained model have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from nmt.configuration import build
from nmt.configuration import loading
from nmt.configuration.check import faults, locate
from nmt.data.text import Errors
from nmt.foundation.errors import UserError
from nmt.inference.formats import ONE_BEST, FormatName
from nmt.inference.generation import Averaging
from nmt.metric import Metric
from nmt.layers.packed import GenerationPrecision
from nmt.foundation.ranges import Positive
from nmt.inference.translator import Translator
from nmt.inference.word_alignment import Symmetrization


def translate_settings(
    *,
    model: str | list[str],
    device: str,
    precision: GenerationPrecision,
    averaging: Averaging,
    shares: list[Positive] | None = None,
    input: str | None = None,
    output: str | None = None,
    format: FormatName,
    errors: Errors,
    resume: bool,
    prefix: str | None = None,
    constraints: str | None = None,
    attention_map: str | None = None,
    compare: str | list[str] | None = None,
) -> None:
    """The keys at the top of conf/translate.yaml: their names and types."""


def evaluate_settings(
    *,
    model: str | list[str],
    source: str,
    reference: str,
    device: str,
    precision: GenerationPrecision,
    averaging: Averaging,
    shares: list[Positive] | None = None,
    output: str | None = None,
) -> None:
    """The keys at the top of conf/evaluate.yaml."""


def score_settings(
    *,
    model: str | list[str],
    source: str,
    target: str | None = None,
    nbest: str | None = None,
    output: str | None = None,
    format: Literal["text", "jsonl"],
    normalize: Literal["none", "average"],
    errors: Errors,
    device: str,
    precision: GenerationPrecision,
    averaging: Averaging,
    shares: list[Positive] | None = None,
) -> None:
    """The keys at the top of conf/score.yaml."""


def align_settings(
    *,
    model: str | list[str] | None = None,
    vectors: list[str] | None = None,
    reverse: str | list[str] | None = None,
    symmetrize: Symmetrization,
    source: str,
    target: str,
    gold: str | None = None,
    output: str | None = None,
    format: Literal["pharaoh", "json"],
    device: str,
    precision: GenerationPrecision,
    averaging: Averaging,
    shares: list[Positive] | None = None,
) -> None:
    """The keys at the top of conf/align.yaml."""


WRITTEN = ("output", "attention_map", "explain")
"""Keys whose files are written."""
ENDINGS = (".html", ".png", ".json")
SETTINGS: dict[str, Callable[..., None]] = {
    "translate": translate_settings,
    "evaluate": evaluate_settings,
    "score": score_settings,
    "align": align_settings,
}


def check(config: Mapping[str, Any], command: Literal["translate", "evaluate", "score", "align"]) -> None:
    """Raises UserError listing everything that is wrong with the configuration."""
    top = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    found = [fault.removeprefix(".").replace("give .", "give ") for fault in faults(top, SETTINGS[command], "")]
    found += faults(chosen(config["translation"]), Translator, "translation", ("precision", "averaging", "shares"))
    found += faults(config.get("metric", {}), Metric, "metric")
    if "search" in config:
        found += _faults_of_search(config)
    if config.get("metric", {}).get("name") == "loss":
        found.append("metric.name=loss: not a comparison of texts; choose bleu, chrf, ter or exact")
    if not found:
        found += _collisions(config)
        found += {"translate": _translate_faults, "score": _score_faults, "align": _align_faults}.get(
            command, lambda _: []
        )(config)
    if found:
        raise UserError("the configuration has faults:\n" + "\n".join(f"  - {fault}" for fault in found))


def _faults_of_search(config: Mapping[str, Any]) -> list[str]:
    search = config["search"]
    wrong = faults(search, locate(search.get("_target_", ""), "nmt.search", "search"), "search")
    if not wrong:
        try:
            build.make(config, "search")
        except ValueError as error:
            wrong.append(str(error))
    if config.get("format", "text") in ONE_BEST and not wrong and search.get("n_best", 1) > 1:
        wrong.append(f"search.n_best={search['n_best']}: shown by format=jsonl and format=moses only")
    return wrong


def _collisions(config: Mapping[str, Any]) -> list[str]:
    """An output that is also an input, and what else is always wrong."""
    found = []
    models = config["model"]
    if models == []:
        found.append("model=[]: give a run directory, or several as [A,B,C]")
    count = len(models) if isinstance(models, list) else 1
    if config["shares"] is not None and models and len(config["shares"]) != count:
        found.append(f"shares={config['shares']}: give one positive number for each of {count} models")
    taken: dict[Path, str] = {}
    for key in ("input", "source", "reference", "target", "nbest", "prefix", "constraints", "gold", *WRITTEN):
        name = config.get(key)
        if not name:
            continue
        file = Path(name).resolve()
        if key in WRITTEN and file in taken:
            how = "written" if taken[file] in WRITTEN else "read"
            found.append(f"{key}={name}: is {how} as {taken[file]}= too; choose another name")
        taken[file] = key
    return found


def _list(models: str | list[str] | None) -> list[str]:
    return [models] if isinstance(models, str) else models or []


def _translate_faults(config: Mapping[str, Any]) -> list[str]:
    """Combinations that cannot be."""
    found = []
    shown, output = config["attention_map"], config["output"]
    if shown and not shown.endswith(ENDINGS):
        found.append(f"attention_map={shown}: the name must end in .html, .png or .json")
    if config["compare"] and not shown:
        found.append("compare: says which models are drawn beside in attention_map=FILE.html; give that too")
    beside = _list(config["compare"])
    if len(beside) > 3:
        found.append("compare: three models beside the one that translates, at most")
    if len({*beside, *_list(config["model"])}) < len(beside) + len(set(_list(config["model"]))):
        found.append("compare: each model once, and not the one that translates")
    if config["resume"] and not (output and config["input"]):
        found.append("resume=true: needs input=FILE and output=FILE")
    if config["resume"] and shown:
        found.append("resume=true: an attention map needs all sentences; leave attention_map out")
    if (config["prefix"] or config["constraints"]) and not config["input"]:
        found.append("prefix and constraints belong to the lines of a file: give input=FILE")
    return found


def _score_faults(config: Mapping[str, Any]) -> list[str]:
    if (config["target"] is None) == (config["nbest"] is None):
        return ["target, nbest: give one of them, target=FILE (a translation a line) or nbest=FILE (Moses format)"]
    if config["nbest"] and (config["format"] != "text" or config["normalize"] != "none"):
        return ["nbest: is written back in its own format, with log-probabilities; leave format and normalize out"]
    return []


def _align_faults(config: Mapping[str, Any]) -> list[str]:
    if (config["model"] is None) == (config["vectors"] is None):
        return ["model, vectors: give one of them, model=RUN_DIR or vectors=[SOURCE,TARGET]"]
    if config["vectors"] is not None and len(config["vectors"]) != 2:
        return ["vectors: give two files, [SOURCE,TARGET]"]
    if config["vectors"] and config["reverse"]:
        return ["reverse: vectors already look in both directions; leave it out"]
    return []


ANSWERING = ("model", "input", "output", "format", "errors", "explain", "device")
"""The keys of conf/classify.yaml that go with model=."""


def check_answering(config: Mapping[str, Any]) -> None:
    """Raises UserError listing everything that is wrong with a configuration of nmt.classify that has a model."""
    top = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    found = [fault.removeprefix(".") for fault in faults(top, build.classification_settings, "")]
    if not found:
        found += _collisions({"shares": None, **config})
        shown = config["explain"]
        if shown and not shown.endswith(ENDINGS):
            found.append(f"explain={shown}: the name must end in .html, .png or .json")
    if found:
        raise UserError("the configuration has faults:\n" + "\n".join(f"  - {fault}" for fault in found))


def chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that are not left to the model."""
    return {key: value for key, value in options.items() if value is not None}


def load_translator(config: Mapping[str, Any]) -> Translator:
    """The translator that a checked configuration asks for. Raises UserError if there is no usable checkpoint."""
    return loading.translator(
        config["model"],
        device=config["device"],
        search=build.make(config, "search") if "search" in config else None,
        precision=config["precision"],
        averaging=config["averaging"],
        shares=config["shares"],
        **chosen(config["translation"]),
    )
