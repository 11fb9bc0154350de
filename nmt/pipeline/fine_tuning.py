"""Starting from a trained model: its network, weights and vocabulary, with new data, rate and objective."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nmt.configuration.compose import parse
from nmt.configuration.faults import ConfigError, shown, unknown
from nmt.foundation.errors import UserError
from nmt.model.seq2seq import Seq2Seq
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint

NETWORK = (
    "cell",
    "sizes",
    "model",
    "encoder",
    "decoder",
    "attention",
    "window",
    "normalizer",
    "tokenizer",
)
"""What a configuration takes over from the model that it starts from."""
VOCABULARY = (
    "source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias", "lexical.output.weight",
)  # fmt: skip
"""Parameters with a row for each piece."""


def read_initial(path: str) -> Checkpoint:
    """The checkpoint of init=. Raises UserError if there is none, or if it classifies."""
    try:
        saved = ckpt.read(ckpt.find_checkpoint(path))
    except UserError as error:
        raise UserError(str(error).replace(f"model={path}", f"init={path}")) from None
    ckpt.check_kind(saved, "train")
    return saved


def with_network_of(
    config: Mapping[str, Any], path: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """A configuration with the network and the tokenizer of the model in `path`. Keys of theirs that were typed still count,
    such as model.dropout; a fault for another choice of one of these groups, or a key that they do not have."""
    held = read_initial(path).meta.get("config")
    if not isinstance(held, dict):
        raise UserError(f"init={path}: holds no configuration; it is damaged")
    found, taken = (
        list[ConfigError](),
        {**config, **{name: copy.deepcopy(held[name]) for name in NETWORK if name in held}},
    )
    for override in parse(overrides)[0]:
        group, _, key = override.key_or_group.partition(".")
        if group not in NETWORK:
            continue
        value = override.value()
        if not key or group == "sizes":
            why = f"network and tokenizer are those of init={path}; only single keys of theirs can change"
            found.append(ConfigError(f"{override.key_or_group}={shown(value)}", why))
        elif override.key_or_group in ("model.copy", "model.lexical") and value != taken[
            "model"
        ].get(key, False):
            why = f"adds to the network or takes from it, and its weights are those of init={path}; leave it out"
            found.append(ConfigError(f"{override.key_or_group}={shown(value)}", why))
        elif not isinstance(taken.get(group), dict):
            found.append(unknown(override.key_or_group, []))
        else:
            taken[group][key] = value
    return taken, found


def take_weights(network: Seq2Seq, saved: Checkpoint) -> None:
    """Copies the weights of a trained model. The network may have more pieces, at the end of its vocabulary: their vectors
    stay as they are, and their bias is that of the least probable piece. Raises UserError if anything else differs."""
    weights = saved.part("ema") or saved.part("model")
    own = dict(network.named_parameters())
    wrong = sorted(set(own) ^ set(weights))
    for name in set(own) & set(weights):
        ours, theirs = own[name].shape, weights[name].shape
        more = name in VOCABULARY and ours[1:] == theirs[1:] and ours[0] >= theirs[0]
        wrong += [] if ours == theirs or more else [name]
    if wrong:
        some = ", ".join(sorted(wrong)[:3])
        what = "leave the sizes and parts of the network as they are"
        raise UserError(f"init={saved.path}: its weights do not fit ({some} …): {what}")
    with torch.no_grad():
        for name, parameter in own.items():
            rows = parameter[: len(weights[name])] if parameter.dim() else parameter
            rows.copy_(weights[name])
        network.output.bias[len(weights["output.bias"]) :] = weights["output.bias"].min()


def freeze(network: torch.nn.Module, names: Sequence[str]) -> None:
    """Parameters whose names begin so are not trained; tied embeddings have several names. Raises UserError for names that
    none has, or if none is left."""
    parameters = dict(network.named_parameters(remove_duplicate=False))
    chosen = {
        name: [p for n, p in parameters.items() if n == name or n.startswith(f"{name}.")]
        for name in names
    }
    nothing = [name for name, its in chosen.items() if not its]
    if nothing:
        parts = ", ".join(sorted({name.partition(".")[0] for name in parameters}))
        raise UserError(
            f"freeze={','.join(nothing)}: no part of the network has this name. There are: {parts}"
        )
    for its in chosen.values():
        for parameter in its:
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in parameters.values()):
        raise UserError("freeze: nothing is left to train")
