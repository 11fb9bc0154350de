"""From the command line to a command's settings: composed once, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.configuration.compose import Unfit, apply, compose_unresolved, parse, resolve
from nmt.configuration.faults import Fault, Faults
from nmt.configuration.settings import COMMANDS, Settings, TrainingSettings
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint

CHANGEABLE = ("trainer", "objective", "search", "translation", "device", "max_validation")
"""Keys and groups that may change when a run is resumed; all others have shaped its weights or its data."""


def configure(command: str, overrides: Sequence[str]) -> Settings:
    """The settings of a command. Raises Faults listing everything that is wrong with the command line and with the rest
    of the configuration."""
    kind = COMMANDS[command]
    if issubclass(kind, TrainingSettings):
        path, changes = _resumed(overrides)
        if path is not None:
            return kind.of({**changed(saved_run(path, command), changes), "resume": path})
    try:
        config = compose_unresolved(command, overrides)
    except Unfit as wrong:
        return kind.of(resolve(wrong.rest), also=wrong.faults)  # raises: what was typed has faults already
    return kind.of(resolve(config))


def _resumed(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """The run directory given by resume= (None if not given), and all other overrides."""
    parsed, _ = parse([text for text in overrides if text.startswith("resume=")])
    others = [text for text in overrides if not text.startswith("resume=")]
    return (parsed[-1].value() if parsed else None), others


def saved_run(path: str, command: str) -> Checkpoint:
    """The checkpoint to resume a run from. Raises UserError if there is none, or if another command wrote it."""
    file = Path(path) / ckpt.LAST
    if not file.is_file():
        raise Faults([Fault("resume", f"no {ckpt.LAST} in it; there is nothing to go on with", path)])
    saved = ckpt.read(file)
    ckpt.check_kind(saved, command)
    return saved


def changed(saved: Checkpoint, changes: Sequence[str]) -> Mapping[str, Any]:
    """The configuration of a run with some of its values changed. Raises Faults for what cannot change."""
    from omegaconf import OmegaConf

    config = saved.meta["config"]
    parsed, found = parse(changes)
    fitting = []
    for text, override in zip(changes, parsed, strict=False):
        key = override.key_or_group
        whole_group = "." not in key and isinstance(config.get(key), Mapping)
        if key.split(".")[0] not in CHANGEABLE or key == "trainer.ema" or whole_group:
            why = "cannot change when resuming (the weights and the state were made with the old value)"
            found.append(Fault(text, f"{why}. What can change: single keys of {', '.join(CHANGEABLE)}"))
        else:
            fitting.append(override)
    unresolved = OmegaConf.create(dict(config))
    found += apply(unresolved, fitting)
    if found:
        raise Faults(found)
    return resolve(unresolved)
