"""What the command lines that use a trained model have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt import build
from nmt.check import faults, locate
from nmt.errors import UserError
from nmt.translator import Translator


def load_translator(config: Mapping[str, Any]) -> Translator:
    """The translator that `config` (conf/translate.yaml or conf/evaluate.yaml) asks for.

    Raises UserError listing all faults of the configuration, or if there is no usable checkpoint.
    """
    options = {key: value for key, value in config["translation"].items() if value is not None}
    search = config["search"]
    target = locate(search.get("_target_", ""), "nmt.search", "search")
    found = faults(search, target, "search") + faults(options, Translator, "translation", ("autocast",))
    if config.get("model") in (None, "???"):
        found.append("model: missing; give model=RUN_DIR or model=FILE.safetensors")
    if config["precision"] not in ("float32", "bfloat16", "float16"):
        found.append(f"precision={config['precision']}: must be one of float32, bfloat16, float16")
    if not found and search.get("n_best", 1) > 1:
        found.append("search.n_best: only the best translation is written here; use search.n_best=1")
    if not found:
        try:
            searcher = build.make(config, "search")
        except ValueError as error:
            found.append(str(error))
    if found:
        raise UserError("the configuration has faults:\n" + "\n".join(f"  - {fault}" for fault in found))
    return build.translator(
        config["model"], device=config["device"], search=searcher, precision=config["precision"], **options
    )


def one_line(text: str) -> str:
    """A translation as one line of a file (byte fallback can write a newline)."""
    return " ".join(text.split("\n"))
