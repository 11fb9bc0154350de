"""python -m nmt.cite [model=RUN_DIR]

BibTeX of the papers that nmt implements, or of those that the parts and settings of a model come from.
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

    entries, conditions = {}, {}
    for line in Path(__file__).with_name("papers.bib").read_text(encoding="utf-8").splitlines():
        kind, brace, rest = line.partition("{")
        if brace and kind.startswith("@"):
            key = rest.partition(",")[0]
            entries[key], _, condition = line.partition(", when={")
            if condition:
                entries[key], conditions[key] = f"{entries[key]}}}", condition.removesuffix("}}")
    wanted = set(entries) if settings.model is None else _used(settings.model, conditions)
    for key in sorted(wanted & set(entries)):
        print(entries[key].replace(", ", ",\n  ", 1).replace("}, ", "},\n  "))


def keys(text: str) -> list[str]:
    """Keys of the papers that a text names: `Zoph & Knight 2016` is zoph-knight-2016."""
    import re

    name = r"[A-Z][\w'-]+"
    named = re.findall(
        rf"({name}(?:, {name})*(?: & {name}| et al\.)?),? \(?((?:19|20)\d\d)\b",
        " ".join(text.split()),
    )
    return ["-".join([*re.findall(r"\w+", authors), year]).lower() for authors, year in named]


def holds(condition: str, settings: Mapping[str, Any]) -> bool:
    """Whether settings are as an entry's `when` says: `key`, which must be switched on, or `key=value`, joined by "and" and
    "or"; * stands for any letters."""
    from fnmatch import fnmatchcase

    def one(term: str) -> bool:
        pattern, equals, wanted = term.partition("=")
        values = [value for key, value in settings.items() if fnmatchcase(key, pattern)]
        return any(
            fnmatchcase(str(value), wanted) if equals else value not in (0, "", None)
            for value in values
        )

    return any(all(one(term) for term in terms.split(" and ")) for terms in condition.split(" or "))


def _used(model: str, conditions: Mapping[str, str]) -> set[str]:
    """Keys in the documentation of everything that a model's configuration names. An entry with a condition is used where
    that holds."""
    import inspect

    from nmt.configuration.check import locate
    from nmt.pipeline.run_training import flat
    from nmt.storage import checkpoint as ckpt

    config = ckpt.read(ckpt.find_checkpoint(model)).meta.get("config") or {}
    parts: list[Any] = []
    for group in config.values():
        if isinstance(group, Mapping) and "_target_" in group:
            part = locate(group["_target_"], "nmt", "model")
            parts += [part, inspect.getmodule(part)]
    named = {key for part in parts for key in keys(inspect.getdoc(part) or "")}
    settings = flat(config)
    return (named - set(conditions)) | {
        key for key, condition in conditions.items() if holds(condition, settings)
    }


main = command_line("cite", run)

if __name__ == "__main__":
    main()
