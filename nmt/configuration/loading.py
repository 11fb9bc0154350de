"""Trained models, ready to use, from their checkpoints alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nmt.configuration import build
from nmt.storage import checkpoint as ckpt
from nmt.configuration.devices import find_device, usable_precision
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Search
from nmt.corpus.labels import LabelSet
from nmt.layers.packed import GenerationPrecision
from nmt.network.seq2seq import Seq2Seq
from nmt.inference.text_classifier import TextClassifier
from nmt.tokenizer import Tokenizer
from nmt.inference.translator import Translator

Config = Mapping[str, Any]


def translator(
    path: str | Sequence[str],
    device: str = "auto",
    search: Search | None = None,
    precision: GenerationPrecision = "float32",
    **options: Any,
) -> Translator:
    """The translator of a run directory or checkpoint file, or of several as an ensemble; `search` replaces the one that
    the first was trained with, `options` are those of `Translator`. Raises UserError if there is no usable checkpoint,
    or if the vocabularies differ."""
    paths = [path] if isinstance(path, str) else list(path)
    where = find_device(device)
    loaded = [_load(each) for each in paths]
    _, tokenizer, config = loaded[0]
    for other, (_, theirs, _) in zip(paths[1:], loaded[1:], strict=True):
        if theirs.models != tokenizer.models or theirs.lowercase != tokenizer.lowercase:
            raise UserError(
                f"model: {paths[0]} and {other} have different vocabularies, so their probabilities cannot be averaged. "
                "Train the members on the same data with the same tokenizer settings"
            )
    try:
        settings = {**config["translation"], **options}
        search = search or build.make(config, "search")
        models = [model.to(where).eval() for model, _, _ in loaded]
        return Translator(models, tokenizer, search, precision=usable_precision(precision, where), **settings)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{paths[0]}: its configuration cannot be used ({error})") from error


def text_classifier(path: str, device: str = "auto") -> TextClassifier:
    """That of a run directory or checkpoint file. Raises UserError if there is no usable checkpoint."""
    where = find_device(device)
    saved = ckpt.read(ckpt.find(path))
    ckpt.check_kind(saved, "classify")
    try:
        tokenizer, labels = ckpt.tokenizer_from(saved), saved.meta["labels"]
        names = LabelSet(tuple(map(str, labels["names"])), bool(labels["several"]))
        model = build.classifier(saved.meta["config"], tokenizer.source_size, names)
        max_tokens = int(saved.meta["config"]["max_tokens"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{saved.path}: its configuration cannot be used ({error})") from error
    ckpt.load_weights(model, saved.part("ema") or saved.part("model"), saved.path)
    return TextClassifier(model.to(where).eval(), tokenizer, max_tokens=max_tokens)


def _load(path: str) -> tuple[Seq2Seq, Tokenizer, Config]:
    """Model, tokenizer and configuration of a checkpoint."""
    saved = ckpt.read(ckpt.find(path))
    ckpt.check_kind(saved, "train")
    config = saved.meta.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{saved.path}: holds no configuration; it is damaged")
    try:
        tokenizer = ckpt.tokenizer_from(saved)
        model = build.network(config, tokenizer.source_size, tokenizer.target_size)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{saved.path}: its configuration cannot be used ({error})") from error
    ckpt.load_weights(model, saved.part("ema") or saved.part("model"), saved.path)
    return model, tokenizer, config
