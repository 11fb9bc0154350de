"""What the command lines that use a trained model have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from nmt import build
from nmt.check import faults, locate
from nmt.errors import UserError
from nmt.metrics import Metric
from nmt.packed import GenerationPrecision
from nmt.translator import Translator


def translate_settings(
    *,
    model: str,
    device: str,
    precision: GenerationPrecision,
    input: str | None = None,
    output: str | None = None,
    attention_map: str | None = None,
) -> None:
    """The keys at the top of conf/translate.yaml: their names and types."""


def evaluate_settings(
    *, model: str, source: str, reference: str, device: str, precision: GenerationPrecision, output: str | None = None
) -> None:
    """The keys at the top of conf/evaluate.yaml."""


def check(config: Mapping[str, Any], command: Literal["translate", "evaluate"]) -> None:
    """Raises UserError listing everything that is wrong with the configuration."""
    top = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    found = faults(top, translate_settings if command == "translate" else evaluate_settings, "")
    found = [fault.removeprefix(".").replace("give .", "give ") for fault in found]
    found += faults(chosen(config["translation"]), Translator, "translation", ("precision",))
    found += faults(config.get("metric", {}), Metric, "metric")
    search = config["search"]
    wrong = faults(search, locate(search.get("_target_", ""), "nmt.search", "search"), "search")
    if not wrong:
        try:
            build.make(config, "search")
        except ValueError as error:
            wrong.append(str(error))
    if isinstance(search.get("n_best", 1), int) and search.get("n_best", 1) > 1:
        wrong.append("search.n_best: only the best translation is written; use search.n_best=1")
    found += wrong
    if config.get("metric", {}).get("name") == "loss":
        found.append("metric.name=loss: not a comparison of texts; choose bleu, chrf, ter or exact")
    shown = config.get("attention_map")
    if isinstance(shown, str) and not shown.endswith((".html", ".png", ".json")):
        found.append(f"attention_map={shown}: the name must end in .html, .png or .json")
    if found:
        raise UserError("the configuration has faults:\n" + "\n".join(f"  - {fault}" for fault in found))


def chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that are not left to the model."""
    return {key: value for key, value in options.items() if value is not None}


def load_translator(config: Mapping[str, Any]) -> Translator:
    """The translator that a checked configuration asks for. Raises UserError if there is no usable checkpoint."""
    return build.translator(
        config["model"],
        device=config["device"],
        search=build.make(config, "search"),
        precision=config["precision"],
        **chosen(config["translation"]),
    )


def one_line(text: str) -> str:
    """A translation as one line of a file (byte fallback can write a newline)."""
    return " ".join(text.split("\n"))
