"""Loading of trained models from checkpoints."""

import inspect
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from nmt import components
from nmt.configuration.check import mismatches
from nmt.configuration.compose import compose
from nmt.configuration.configure import settings_class
from nmt.configuration.model_settings import EnsembleSettings, ModelSettings
from nmt.configuration.yaml_files import options as options_of
from nmt.data import as_list
from nmt.data.labels import LabelSet
from nmt.foundation.devices import find_device
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.interfaces import Search
from nmt.foundation.part_limits import ConfigError, ConfigErrors, refuse, shown
from nmt.foundation.plugins import permitting, refuse_missing
from nmt.foundation.suggestions import unknown
from nmt.foundation.synonyms import SYNONYMS
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translator import Translator
from nmt.inference.unknown_words import read_lexicon
from nmt.model.precision import fastest_precision, usable_precision
from nmt.model.seq2seq import Seq2Seq
from nmt.model.uninitialized import Uninitialized
from nmt.search.beam import Beam
from nmt.storage import checkpoint as ckpt
from nmt.tokenizer import Tokenizer

log = logging.getLogger(__name__)
Made = TypeVar("Made", bound=torch.nn.Module)


def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    *,
    key: str = "model",
    plugins: Sequence[str] = (),
    **options: Any,
) -> Translator | TextClassifier:
    """Loads a translator or a text classifier.

    path: run folder, checkpoint file, or hf:USER/NAME; a list forms an ensemble of translators
    device: `auto` (the first GPU, otherwise the CPU), `cpu` or `cuda`
    key: configuration key that contains the path, for error messages
    plugins: packages outside nmt that the model needs and whose code may be executed
    options: options of a translator; most defaults are values in the model's configuration:
        search: search algorithm, as a name (greedy, beam, sample …) or an object
        precision: numerical precision of matrix multiplications: float32, bfloat16, int8, or auto
            (int8 on a CPU, bfloat16 on a GPU)
        averaging: quantity averaged over an ensemble: probability or log_probability
        shares: positive weight of each model in an ensemble
        unknown: treatment of unknown words: mark, drop or copy
        lexicon: translations of source words, for unknown=copy
        batch_tokens: maximum number of source tokens in a batch
        capture: whether CUDA graphs compute search steps on a GPU
        max_source: maximum number of source tokens in a sentence; longer sentences are cut
        max_length_factor, max_length_offset: a translation has at most factor · source tokens +
            offset tokens
        no_repeat_ngram_size: length, in tokens, of sequences that must not be repeated; 0: none

    A classifier has no options. Raises UserError for a missing checkpoint or an invalid option.
    """
    if not isinstance(path, str | Path | Sequence) or isinstance(path, bytes):
        raise TypeError(f"path: must be a path or a list of paths, not {type(path).__name__}")
    paths = [path] if isinstance(path, str | Path) else list(path)
    if not paths:
        raise UserError(
            f"{key}: the list is empty; give at least one run folder or checkpoint file"
        )
    checkpoints = [ckpt.read_model(str(path), key) for path in paths]
    first = checkpoints[0]
    with permitting(plugins):
        if first.meta.get("command") != "classify":
            return _translator(checkpoints, device, **options)
        if options:
            raise UserError(
                f"{first.path}: a classifier takes no options, got {', '.join(options)}"
            )
        if len(checkpoints) > 1:
            raise UserError(f"{first.path}: a classifier cannot be part of an ensemble")
        return _text_classifier(first, device)


def translator(
    path: str | Sequence[str], device: str = "auto", *, mapped: bool = False, **options: Any
) -> Translator:
    """Loads a translator.

    path: run folder or checkpoint file; a list forms an ensemble
    device: `auto`, `cpu` or `cuda`
    mapped: whether the weights are memory-mapped from the checkpoint file; several processes then
        share them in memory
    options: options of the translator, such as search, precision and batch_tokens

    Raises UserError for a missing checkpoint or an invalid option.
    """
    checkpoints = [ckpt.read_model(model, mapped=mapped) for model in as_list(path)]
    return _translator(checkpoints, device, **options)


def text_classifier(path: str, device: str = "auto") -> TextClassifier:
    """Loads a text classifier.

    path: run folder or checkpoint file of the model
    device: `auto`, `cpu` or `cuda`

    Raises UserError for a missing or damaged checkpoint.
    """
    return _text_classifier(ckpt.read_model(path), device)


def _translator(
    checkpoints: Sequence[ckpt.Checkpoint],
    device: str,
    search: Any = None,
    precision: Any = "float32",
    **options: Any,
) -> Translator:
    where = find_device(device)
    if precision == "auto":
        precision = fastest_precision(where)
    _check_options({**options, "search": search, "precision": precision})
    loaded = [_seq2seq(saved) for saved in checkpoints]
    first = checkpoints[0]
    tokenizer, config = loaded[0][1:]
    for saved, (_, other, _) in zip(checkpoints, loaded, strict=True):
        if any(
            getattr(other, name) != getattr(tokenizer, name)
            for name in ("models", "lowercase", "columns")
        ):
            raise UsageError(
                f"model: {first.path} and {saved.path} have different vocabularies, so their "
                "probabilities cannot be averaged. Train the models of an ensemble on the same "
                "data with the same tokenizer settings"
            )
        if saved.languages != first.languages:
            log.warning(
                "model: %s translates %s, but %s translates %s; the models of an ensemble should "
                "translate the same languages",
                first.path,
                " → ".join(first.languages),
                saved.path,
                " → ".join(saved.languages),
            )
    try:
        languages = first.languages or ("source", "target")
        if isinstance(search, str):
            search = _named(search)
        return Translator(
            [model.to(where).eval() for model, _, _ in loaded],
            tokenizer,
            search or components.make(config, "search"),
            precision=usable_precision(precision, where),
            typical_words=first.meta.get("typical_words"),
            **{**config["translation"], "languages": languages, **options},
        )
    except UserError:
        raise  # an error whose message already names the option
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{first.path}: the configuration is invalid ({error})") from error


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises ConfigErrors for unknown options of `load` and for invalid values."""
    not_options = ("models", "tokenizer", "languages", "typical_words")
    known = {*inspect.signature(Translator).parameters, "device"}.difference(not_options)
    errors = [_unknown_option(key, known) for key in options if key not in known]
    checked = {key: value for key, value in options.items() if key in known - {"search"}}
    errors += mismatches(checked, Translator, given=(*not_options, "search"))
    search = options["search"]
    is_object = callable(search) and not inspect.isclass(search)
    if not (search is None or isinstance(search, str) or is_object):
        names = ", ".join(options_of("search"))
        problem = f"must be a name or an object of a search class (names: {names})"
        errors.append(ConfigError("search", problem, shown(search)))
    refuse(errors)


def _unknown_option(key: str, known: Collection[str]) -> ConfigError:
    """Returns the error for an unknown option of `load`. For an option of a search algorithm, the
    message shows how to pass it as search=…"""
    names = [name.removeprefix("translation.") for name in SYNONYMS.get(key, ())]
    of_search = [name.partition(".")[2] for name in names if name.startswith("search.")]
    if key in inspect.signature(Beam).parameters:
        of_search.append(key)
    if of_search:
        example = f"search=Beam({of_search[0]}=…) after `from nmt.search.beam import Beam`"
        return ConfigError(
            key, f"key not found; set it as an option of the search algorithm, such as {example}"
        )
    error = unknown(key, known)
    return replace(error, nearest=tuple(name for name in names if name in known) or error.nearest)


def _named(name: str) -> Search:
    """Returns the search algorithm with the given name and the default settings of its YAML file.

    Raises UserError for an unknown name.
    """
    if name not in options_of("search"):
        raise UsageError(f"search={name}: unknown; choose one of {', '.join(options_of('search'))}")
    return components.make({"search": compose("translate", [f"search={name}"])["search"]}, "search")


def _text_classifier(saved: ckpt.Checkpoint, device: str) -> TextClassifier:
    where = find_device(device)
    config = _checked(saved, "classify")
    tokenizer = ckpt.tokenizer_from(saved)
    try:
        labels = saved.meta["labels"]
        names = LabelSet(tuple(map(str, labels["names"])), bool(labels["several"]))
    except (KeyError, TypeError) as error:
        raise UserError(f"{saved.path}: damaged checkpoint (no labels)") from error
    network = _filled(lambda: components.classifier(config, tokenizer.source_size, names), saved)
    return TextClassifier(network.to(where).eval(), tokenizer, max_tokens=config["max_tokens"])


def translator_for(
    settings: ModelSettings, model: str | list[str] | None = None, *, mapped: bool = False
) -> Translator:
    """Loads the translator that is described by the settings of a command.

    settings: validated settings of the command
    model: path of the model, or paths of an ensemble; None for the model in the settings
    mapped: whether the weights are memory-mapped from the checkpoint file; several processes then
        share them in memory
    """
    search = getattr(settings, "search", None)
    lexicon = getattr(settings, "lexicon", None)
    # Models that are compared only compute attention, and replace no unknown words.
    is_compared = model in as_list(getattr(settings, "compare", None) or [])
    # Options with the value null use the setting of the model.
    options = {key: value for key, value in settings.translation.items() if value is not None}
    if isinstance(settings, EnsembleSettings):
        options |= {
            "averaging": settings.averaging,
            "shares": settings.shares if model is None else None,
        }
    return translator(
        settings.model if model is None else model,
        device=settings.device,
        mapped=mapped,
        search=components.make({"search": search}, "search") if search is not None else None,
        precision=settings.precision,
        lexicon=read_lexicon(lexicon) if lexicon and not is_compared else None,
        **options,
    )


def _seq2seq(saved: ckpt.Checkpoint) -> tuple[Seq2Seq, Tokenizer, components.Config]:
    """Returns the translation network, the tokenizer and the configuration of a checkpoint."""
    config = _checked(saved, "train")
    tokenizer = ckpt.tokenizer_from(saved)
    sizes = tokenizer.source_size, tokenizer.target_size
    model = _filled(lambda: components.network(config, *sizes, tokenizer.columns), saved)
    ckpt.load_lexicon(model, saved)
    return model, tokenizer, config


def _filled(make: Callable[[], Made], saved: ckpt.Checkpoint) -> Made:
    """Returns a network with the weights of a checkpoint.

    make: function that builds the network
    saved: checkpoint with the weights
    """
    if saved.meta.get("plugins"):
        # Constant tensors of a plugin would have no values on the meta device.
        with torch.random.fork_rng(devices=[]):
            network = make()
    else:
        # On the meta device, wrong weights are detected before memory is allocated.
        with torch.device("meta"), Uninitialized():
            network = make()
    # The shapes are checked before any memory is used.
    ckpt.check_weights(network, saved.weights, saved.path)
    weights = {
        id(parameter): torch.nn.Parameter(
            saved.weights[name].to(torch.float32, copy=not saved.is_mapped)
        )
        for name, parameter in network.named_parameters()
    }
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            setattr(module, name, weights[id(parameter)])  # tied parameters stay tied
    return network


def _checked(saved: ckpt.Checkpoint, command: str) -> components.Config:
    """Returns the configuration of a checkpoint, validated like a configuration from the command
    line.
    """
    ckpt.check_kind(saved, command)
    refuse_missing(saved.meta, saved.path)
    try:
        return settings_class(command).of({**saved.config, "callback": None}, trained=True).values
    except ConfigErrors as error:
        raise UserError(f"{saved.path}: {error}") from error
