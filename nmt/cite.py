"""python -m nmt.cite [model=RUN_DIR]

BibTeX of the papers that nmt implements, or of those that the parts of a model refer to in their documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import CiteSettings


def run(settings: CiteSettings) -> None:
    """Prints the entries, in the order of their keys."""
    from pathlib import Path

    entries = {}
    for line in Path(__file__).with_name("papers.bib").read_text(encoding="utf-8").splitlines():
        kind, brace, rest = line.partition("{")
        if brace and kind.startswith("@"):
            entries[rest.partition(",")[0]] = line
    wanted = set(entries) if settings.model is None else _used(settings.model)
    for key in sorted(wanted & set(entries)):
        print(entries[key].replace(", ", ",\n  ", 1).replace("}, ", "},\n  "))


def keys(text: str) -> list[str]:
    """Keys of the papers that a text names: `Zoph & Knight 2016` is zoph-knight-2016."""
    import re

    name = r"[A-Z][\w'-]+"
    named = re.findall(rf"({name}(?:, {name})*(?: & {name}| et al\.)?),? \(?((?:19|20)\d\d)\b", " ".join(text.split()))
    return ["-".join([*re.findall(r"\w+", authors), year]).lower() for authors, year in named]


def _used(model: str) -> set[str]:
    """Keys in the documentation of all that a model's configuration names, and of the files that its layers are in."""
    import inspect

    from nmt.configuration.check import locate
    from nmt.configuration.loading import load
    from nmt.inference.text_classifier import TextClassifier
    from nmt.layers import cells
    from nmt.storage import checkpoint as ckpt

    loaded = load(model, device="cpu")
    network = loaded.model if isinstance(loaded, TextClassifier) else loaded.models[0]
    parts: list[Any] = [cells, *{inspect.getmodule(layer) for layer in network.modules()}]
    for group in ckpt.read(ckpt.find_checkpoint(model)).meta["config"].values():
        if isinstance(group, Mapping) and "_target_" in group:
            part = locate(group["_target_"], "nmt", "model")
            parts += [part, inspect.getmodule(part)]
    return {key for part in parts for key in keys(inspect.getdoc(part) or "")}


main = command_line("cite", run)

if __name__ == "__main__":
    main()
