"""Trained models, ready to use, from their checkpoints alone."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from nmt.configuration import build
from nmt.configuration.check import mismatches
from nmt.configuration.commands import COMMANDS
from nmt.configuration.compose import compose
from nmt.configuration.compose import options as options_of
from nmt.configuration.faults import ConfigError, ConfigErrors, shown, unknown
from nmt.configuration.model_settings import EnsembleSettings, ModelSettings
from nmt.data.labels import LabelSet
from nmt.foundation.devices import find_device
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Search
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translator import Translator
from nmt.inference.unknown_words import read_lexicon
from nmt.model.precision import usable_precision
from nmt.model.seq2seq import Seq2Seq
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.tokenizer import Tokenizer

Config = Mapping[str, Any]
Made = TypeVar("Made", bound=nn.Module)


def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    *,
    key: str = "model",
    **options: Any,
) -> Translator | TextClassifier:
    """What a run directory or checkpoint file holds: a `Translator` or a `TextClassifier`, ready to use. Several paths make
    an ensemble of translators.

    `device`: auto, cpu, cuda …; `key`: the setting that names the path, for error messages; `search`: another search, by
    its name (greedy, beam, sample …) or as an object; `precision`:
    float32, bfloat16, int8. For ensembles, `averaging`: probability or log_probability, `shares`: a weight for each model.
    `unknown`: mark, drop or copy unknown words, `lexicon`: what copy writes for them. `batch_tokens`: source positions
    searched together; `max_source`: tokens after which the rest is cut; `max_length_factor`, `max_length_offset`: the
    longest translation is factor times source tokens plus offset. What is not given is as the model was trained. A
    classifier has only `device`. Raises UserError if there is no usable checkpoint, or an option is unknown or has a wrong
    value.
    """
    if not isinstance(path, str | Path | Sequence):
        raise TypeError(f"give a path, or a list of paths, not {type(path).__name__}")
    paths = [path] if isinstance(path, str | Path) else list(path)
    if not paths:
        raise UserError(f"{key}: give a run directory or a checkpoint file, or several")
    saved = [_read(each, key) for each in paths]
    if saved[0].meta.get("command") != "classify":
        return _translator(saved, device, **options)
    if options:
        raise UserError(f"{saved[0].path}: a model that classifies takes no {', '.join(options)}")
    if len(saved) > 1:
        raise UserError(f"{saved[0].path}: a model that classifies cannot be one of several")
    return _text_classifier(saved[0], device)


def translator(path: str | Sequence[str], device: str = "auto", **options: Any) -> Translator:
    """The translator of a run directory or checkpoint file, or of several as an ensemble.

    `search` replaces the search of the first model's configuration; `precision` is that of matrix products; the other
    options are those of `Translator`. Raises UserError if there is no usable checkpoint, or if the vocabularies differ.
    """
    return _translator(
        [_read(each) for each in ([path] if isinstance(path, str) else path)], device, **options
    )


def text_classifier(path: str, device: str = "auto") -> TextClassifier:
    """The text classifier of a run directory or checkpoint file. Raises UserError if there is no usable checkpoint."""
    return _text_classifier(_read(path), device)


def _read(path: str | Path, key: str = "model") -> Checkpoint:
    return ckpt.read(ckpt.find_checkpoint(str(path), key))


def _translator(
    checkpoints: Sequence[Checkpoint],
    device: str,
    search: Any = None,
    precision: Any = "float32",
    **options: Any,
) -> Translator:
    where = find_device(device)
    _check_options({**options, "search": search, "precision": precision})
    loaded = [_seq2seq(saved) for saved in checkpoints]
    first, (_, tokenizer, config) = checkpoints[0].path, loaded[0]
    for other, (_, theirs, _) in zip(checkpoints[1:], loaded[1:], strict=True):
        if (theirs.models, theirs.lowercase, theirs.columns) != (
            tokenizer.models,
            tokenizer.lowercase,
            tokenizer.columns,
        ):
            raise UserError(
                f"model: {first} and {other.path} have different vocabularies, so their probabilities cannot be averaged. "
                "Train the members on the same data with the same tokenizer settings"
            )
    try:
        languages = tuple(map(str, checkpoints[0].meta.get("languages") or ("source", "target")))
        settings = {**config["translation"], "languages": languages, **options}
        if isinstance(search, str):
            search = _named(search)
        search = search or build.make(config, "search")
        models = [model.to(where).eval() for model, _, _ in loaded]
        return Translator(
            models, tokenizer, search, precision=usable_precision(precision, where), **settings
        )
    except UserError:
        raise  # about what was typed
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{first}: its configuration cannot be used ({error})") from error


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises ConfigErrors for options of `load` that there are not, or that cannot have such values."""
    made_here = ("models", "tokenizer", "search", "languages")
    known = {*inspect.signature(Translator).parameters, "device"} - {
        "models",
        "tokenizer",
        "languages",
    }
    found = [unknown(key, known) for key in options if key not in known]
    found += mismatches(
        {k: v for k, v in options.items() if k in known - {"search"}}, Translator, given=made_here
    )
    search, there = options["search"], ", ".join(options_of("search"))
    if not (search is None or isinstance(search, str) or callable(search)):
        found.append(
            ConfigError(
                "search",
                f"must be a name or an object that searches (there are: {there})",
                shown(search),
            )
        )
    if found:
        raise ConfigErrors(found)


def _named(name: str) -> Search:
    """A search by its name, with the values of its YAML. Raises UserError if there is none."""
    if name not in options_of("search"):
        raise UserError(f"search={name}: choose {', '.join(options_of('search'))}")
    return build.make({"search": compose("translate", [f"search={name}"])["search"]}, "search")


def _text_classifier(saved: Checkpoint, device: str) -> TextClassifier:
    where = find_device(device)
    config, tokenizer = _checked(saved, "classify"), ckpt.tokenizer_from(saved)
    try:
        labels = saved.meta["labels"]
        names = LabelSet(tuple(map(str, labels["names"])), bool(labels["several"]))
    except (KeyError, TypeError) as error:
        raise UserError(f"{saved.path}: no labels in it; it is damaged") from error
    network = _filled(lambda: build.classifier(config, tokenizer.source_size, names), saved)
    return TextClassifier(network.to(where).eval(), tokenizer, max_tokens=config["max_tokens"])


def translator_for(settings: ModelSettings, model: str | list[str] | None = None) -> Translator:
    """The translator that a command's settings describe; if `model` is given, that model with the same settings."""
    search, lexicon = getattr(settings, "search", None), getattr(settings, "lexicon", None)
    options = dict(settings.translator_options)
    if isinstance(settings, EnsembleSettings):
        options |= {
            "averaging": settings.averaging,
            "shares": settings.shares if model is None else None,
        }
    return translator(
        settings.model if model is None else model,
        device=settings.device,
        search=build.make({"search": search}, "search") if search is not None else None,
        precision=settings.precision,
        lexicon=read_lexicon(lexicon) if lexicon else None,
        **options,
    )


def _seq2seq(saved: Checkpoint) -> tuple[Seq2Seq, Tokenizer, Config]:
    """Model, tokenizer and configuration of a checkpoint."""
    config, tokenizer = _checked(saved, "train"), ckpt.tokenizer_from(saved)
    sizes = tokenizer.source_size, tokenizer.target_size
    model = _filled(lambda: build.network(config, *sizes, tokenizer.columns), saved)
    return model, tokenizer, config


def _filled(make: Callable[[], Made], saved: Checkpoint) -> Made:
    """A network with these weights. First it is made without memory, so that nothing is allocated that does not fit."""
    with torch.device("meta"):
        ckpt.check_weights(make(), saved.weights, saved.path)
    network = make()
    ckpt.load_weights(network, saved.weights, saved.path)
    return network


def _checked(saved: Checkpoint, command: str) -> Config:
    """The configuration of a checkpoint, which is checked as if it had been typed."""
    ckpt.check_kind(saved, command)
    config = saved.meta.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{saved.path}: holds no configuration; it is damaged")
    try:
        return COMMANDS[command].of(config).values
    except ConfigErrors as error:
        raise UserError(f"{saved.path}: {error}") from error
