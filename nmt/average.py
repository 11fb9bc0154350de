"""python -m nmt.average models=[A,B,C] output=FILE.safetensors

The mean of the weights of several checkpoints of one network: run directories (their best model) or files, such as the
last-*.safetensors that trainer.keep leaves. The result is a model like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nmt.configuration.command_line import command_line

if TYPE_CHECKING:
    from nmt.configuration.model_settings import AverageSettings


def run(settings: AverageSettings) -> None:
    """Writes the average. Raises UserError if the checkpoints are not of one network and one vocabulary."""
    import logging
    from pathlib import Path

    import torch

    from nmt.foundation.errors import UserError
    from nmt.storage import checkpoint as ckpt

    parts = [ckpt.read(ckpt.find_checkpoint(path)) for path in settings.models]
    weights = [saved.part("ema") or saved.part("model") for saved in parts]
    first, others = parts[0], parts[1:]
    for saved, held in zip(others, weights[1:], strict=True):
        ckpt.check_kind(saved, str(first.meta.get("command", "train")))
        shapes = [
            {name: tuple(tensor.shape) for name, tensor in each.items()}
            for each in (weights[0], held)
        ]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"models: {first.path} and {saved.path} are of different networks, which have no mean"
            )
        if ckpt.tokenizer_from(saved).models != ckpt.tokenizer_from(first).models:
            raise UserError(
                f"models: {first.path} and {saved.path} have different vocabularies, so their mean says nothing"
            )
        facts = [_facts(each.meta) for each in (first, saved)]
        differ = sorted(
            key for key in {*facts[0], *facts[1]} if facts[0].get(key) != facts[1].get(key)
        )
        if differ:
            raise UserError(
                f"models: {first.path} and {saved.path} differ in {', '.join(differ)}, so their mean says nothing"
            )
    mean = {
        f"model/{name}": torch.stack([held[name] for held in weights]).mean(0)
        for name in weights[0]
    }
    fixed = {
        name: tensor for name, tensor in first.tensors.items() if name.startswith("tokenizer/")
    }
    meta = {
        key: value
        for key, value in first.meta.items()
        if key not in ("format", "training", "metrics", "update")
    }
    ckpt.write(
        Path(settings.output),
        {**meta, "averaged": [str(saved.path) for saved in parts]},
        {**fixed, **mean},
    )
    log = logging.getLogger("nmt.average")
    log.info("%s: the mean of %s checkpoints", settings.output, len(parts))


def _facts(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What weights stand for: the parts of the network by their names, labels, and how text is read."""
    parts = {
        name: group.get("_target_")
        for name, group in (meta.get("config") or {}).items()
        if name in ("encoder", "decoder", "attention", "window", "normalizer", "pooling")
        and isinstance(group, Mapping)
    }
    reads = {
        key: value for key, value in (meta.get("tokenizer") or {}).items() if key != "sampling"
    }
    return {**parts, "labels": meta.get("labels"), "languages": meta.get("languages"), **reads}


main = command_line("average", run)

if __name__ == "__main__":
    main()
