"""Checkpoint averaging: mean of the weights of several checkpoints of one network."""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nmt.foundation.configurations import changed_keys, flat
from nmt.foundation.errors import UsageError
from nmt.foundation.part_limits import broken, refuse
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import check_folder, safetensors_metadata

log = logging.getLogger(__name__)
PARTS = ("encoder", "decoder", "attention", "window", "normalizer", "pooling")
"""Names of the configuration groups whose choices must be equal in all averaged models."""
TRAINING_ONLY = re.compile(
    r"dropout|\.(estimator|reward|entropy|expected|decay|noise|offset|penalty|lexicon)$"
)
"""Pattern of the keys of these groups and of `model` that may differ in averaged models, because they
have no effect on translation. Lexicons are compared by their content."""
DROPPED = ("format", "training", "metrics", "update")
"""Entries of the checkpoint header that an averaged checkpoint omits, because they describe a
single training run.
"""
LEAST_SIMILARITY = 0.3
"""Cosine similarity of weight matrices below which two models count as independent, if they have
equal seeds and the same run folder, or if one of them started from another model (`init`).

Models trained with independent seeds have similarities near 0, since their hidden units do not
correspond.
"""
LEAST_SIMILARITY_OF_RUNS = 0.9
"""Cosine similarity of weight matrices below which two models with equal seeds in different run
folders count as independent.

The limit is high, because runs with equal seeds have the same initial weights and therefore similar
weights.
"""


def average_checkpoints(*, models: list[str], output: str) -> None:
    """Writes the mean of the weights of several models as a checkpoint.

    models: run folders (whose best checkpoint is used) or checkpoint files
    output: path of the new checkpoint

    Raises UserError if the network architectures, the vocabularies or the settings differ.
    """
    inputs = [ckpt.find_checkpoint(model, "models").resolve() for model in models]
    path = Path(output)
    is_input = path.resolve() in inputs
    is_other = path.exists() and not is_input and not _is_average(path)
    refuse(
        broken(
            (not output.endswith(".safetensors"), "output", "must end in .safetensors", output),
            (len(models) < 2, "models", "must name at least two, as [A,B]", models),
            (len({*inputs}) < len(inputs), "models", "must not name a model twice", models),
            (is_input, "output", "is also an input model; choose another file", output),
            (is_other, "output", "exists and is not an average; choose another file", output),
        )
    )
    check_folder(path, f"output={output}")
    checkpoints = [ckpt.read_model(model) for model in models]
    first = checkpoints[0]
    weights = [saved.weights for saved in checkpoints]
    for saved in checkpoints[1:]:
        _check_same_network(first, saved)
        if _are_independent(first, saved):
            log.warning(
                "models: %s and %s come from independent training runs, so their mean is not a "
                "useful model; average checkpoints of one run, or of runs that start from the "
                "same model (init=)",
                first.path,
                saved.path,
            )
    tensors = {
        name: tensor
        for name, tensor in first.tensors.items()
        if name.startswith(("tokenizer/", "lexicon/"))
    } | {
        f"model/{name}": torch.stack([one_model[name] for one_model in weights]).mean(0)
        for name in weights[0]
    }
    meta = {key: value for key, value in first.meta.items() if key not in DROPPED}
    meta["averaged"] = [str(saved.path) for saved in checkpoints]
    ckpt.write(path, meta, tensors)
    log.info("%s: written; the weights are the mean of %s checkpoints", output, len(checkpoints))


def _is_average(path: Path) -> bool:
    """Returns whether a file was written by `average_checkpoints`."""
    try:
        # The metadata contains the header of a checkpoint as JSON.
        header = json.loads(safetensors_metadata(path)["nmt"])
    except (KeyError, ValueError):
        return False
    averaged = header.get("averaged")  # update numbers if trainer.average has averaged the weights
    return isinstance(averaged, list) and all(isinstance(name, str) for name in averaged)


def _are_independent(first: ckpt.Checkpoint, other: ckpt.Checkpoint) -> bool:
    """Returns whether two models come from independent training runs.

    The first rule that applies decides:
    1. A model started from another model (`init`): the similarity must be below LEAST_SIMILARITY.
    2. The seeds differ: the models are independent.
    3. The run folders are equal: the similarity must be below LEAST_SIMILARITY.
    4. Otherwise, the similarity must be below LEAST_SIMILARITY_OF_RUNS.

    The similarity is the cosine similarity of the weight matrices. Models in different run folders
    may still come from the same run, since a folder may have been renamed.
    """
    similarity = _similarity(first.weights, other.weights)
    if first.config.get("init") or other.config.get("init"):
        return similarity < LEAST_SIMILARITY
    if first.config.get("seed") != other.config.get("seed"):
        return True
    is_one_run = first.config.get("run_dir") == other.config.get("run_dir")
    return similarity < (LEAST_SIMILARITY if is_one_run else LEAST_SIMILARITY_OF_RUNS)


def _similarity(first: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """Returns the cosine similarity of the concatenated weight matrices of two models."""
    names = [name for name, tensor in first.items() if tensor.dim() > 1]
    one_vector = torch.cat([first[name].flatten().double() for name in names])
    other_vector = torch.cat([other[name].flatten().double() for name in names])
    return float(torch.cosine_similarity(one_vector, other_vector, dim=0))


def _check_same_network(first: ckpt.Checkpoint, other: ckpt.Checkpoint) -> None:
    """Raises UserError unless two checkpoints have the same architecture, vocabularies and
    settings.
    """
    names = f"models: {first.path} and {other.path}"
    kinds = {str(saved.meta.get("command", "train")) for saved in (first, other)}
    if len(kinds) > 1:
        raise UsageError(
            f"{names} are not of one kind (translation models or classifiers); only checkpoints "
            "of one kind can be averaged"
        )
    settings, other_settings = _settings(first), _settings(other)
    differing = changed_keys(_facts(first), _facts(other)) + [
        # Checkpoints of older versions lack newer keys.
        key
        for key in settings.keys() & other_settings.keys()
        if settings[key] != other_settings[key]
    ]
    if differing:
        raise UsageError(
            f"{names} differ in {', '.join(differing)}; only checkpoints that agree in these "
            "properties can be averaged"
        )


def _settings(saved: ckpt.Checkpoint) -> dict[str, Any]:
    """Returns the settings of the network that have an effect on translation."""
    config = saved.meta.get("config") or {}
    groups = {name: config[name] for name in (*PARTS, "model") if name in config}
    return {
        key: value
        for key, value in flat(groups, null="null").items()
        if not TRAINING_ONLY.search(key) and not key.endswith("_target_")
    }


def _facts(saved: ckpt.Checkpoint) -> dict[str, Any]:
    """Returns the properties that averaged models must share, such as components and languages."""
    meta = saved.meta
    config = meta.get("config") or {}
    groups = {name: config[name] for name in PARTS if isinstance(config.get(name), Mapping)}
    return {
        "network architecture": [(name, t.shape) for name, t in sorted(saved.weights.items())],
        "vocabulary": ckpt.tokenizer_from(saved).models,
        "lexicon": ckpt.weights_hash(saved.part("lexicon")),
        # Equal shapes do not suffice: other choices may use the same weights differently.
        **{name: group.get("_target_") for name, group in groups.items()},
        "labels": meta.get("labels"),
        "languages": meta.get("languages"),
        **(meta.get("tokenizer") or {}),
        "sampling": None,  # subword sampling is used in training only
    }
