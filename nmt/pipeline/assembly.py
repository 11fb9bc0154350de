"""What is trained: settings, or a checkpoint with its tokenizer, become a task with data, network and objective."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nmt.configuration import build
from nmt.configuration.saved_runs import read_initial
from nmt.configuration.training_settings import ClassifySettings, TrainingSettings, TrainSettings
from nmt.data import LabelledSplits, Splits, as_list
from nmt.data.filters import Filters
from nmt.data.labels import LabelSet
from nmt.data.preparation import prepare, texts, train_once
from nmt.data.store import Storing
from nmt.foundation.errors import UserError
from nmt.foundation.ranks import ALONE, Ranks
from nmt.inference.candidates import Candidates
from nmt.inference.translator import Translator
from nmt.loading import load
from nmt.model.freezing import freeze, shared_tables
from nmt.model.seq2seq import Seq2Seq
from nmt.pipeline.fine_tuning import take_weights
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.tokenizer import Tokenizer
from nmt.training.task import Task
from nmt.training.task.classification_task import ClassificationTask
from nmt.training.task.classification_task import fingerprints as of_classification
from nmt.training.task.pretrained_vectors import load_vectors
from nmt.training.task.translation_task import TranslationTask
from nmt.training.task.translation_task import fingerprints as of_translation

log = logging.getLogger(__name__)


def fingerprints(command: str, config: Mapping[str, Any]) -> Mapping[str, str]:
    """What identifies the data of a configuration. Raises UserError if it cannot be read."""
    if command == "train":
        return of_translation(loaded(config, filters_of(config)))
    return of_classification(build.make(config, "data").labelled())


def filters_of(config: Mapping[str, Any]) -> Filters:
    """The filters of a configuration, which know the tags of its data."""
    tags = config["data"].get("tags") or {}
    return build.make(config, "filters", tags=tuple(tags.values()))


def loaded(config: Mapping[str, Any], filters: Filters) -> Splits:
    """The parallel text of a configuration; large training text is stored, filtered."""
    data = build.make(config, "data")
    if "keep" in inspect.signature(data.load).parameters:
        return data.load(Storing(config.get("store", "auto"), filters))
    return data.load()


def task_of(
    settings: TrainingSettings, device: torch.device, saved: Checkpoint | None, ranks: Ranks = ALONE
) -> Task:
    """A new task, as the settings describe it, with the tokenizer of the saved run if there is one."""
    if isinstance(settings, TrainSettings):
        return _translation(settings, device, saved, ranks)
    assert isinstance(settings, ClassifySettings)
    return _classification(settings, device, saved, ranks)


def _translation(
    settings: TrainSettings, device: torch.device, saved: Checkpoint | None, ranks: Ranks
) -> TranslationTask:
    config = settings.values
    start = read_initial(settings.init) if settings.init and saved is None else None
    accepted = inspect.signature(build.class_of("objective", config["objective"])).parameters
    supplied: dict[str, Any] = {}
    paths = as_list(config["objective"].get("teacher") or [])
    teachers = _teachers(paths, device) if "teachers" in accepted else None
    if teachers is not None:
        supplied["teachers"] = teachers.models
    filters = filters_of(config)
    splits = loaded(config, filters)
    if saved is not None:
        tokenizer = ckpt.tokenizer_from(saved)
    elif start is not None:
        tokenizer = _tokenizer_from(start, settings, filters, splits, ranks)
    elif teachers is not None:
        tokenizer = teachers.tokenizer.sampled(config["tokenizer"]["sampling"])
    else:
        tokenizer = build.make(config, "tokenizer")
    data = prepare(splits, filters, tokenizer, ranks)
    tokenizer = data.tokenizer
    if teachers is not None:
        _check_teachers(teachers, paths, splits.languages, tokenizer)
        needs_joint = Seq2Seq.needs_joint(settings.model)
        if needs_joint and not tokenizer.joint:
            key, instead = next(iter(needs_joint.items()))
            raise UserError(
                f"{key}: needs one vocabulary for both languages, and the teacher has two: set {instead}"
            )
    if "critic" in accepted:
        if start is None and saved is None:
            log.warning(
                "this objective learns from what the model writes, and an untrained one writes noise: train it by "
                "objective=cross_entropy first, then give init=RUN_DIR"
            )
        lengths = {
            key: settings.translation[key] for key in ("max_length_factor", "max_length_offset")
        }
        judge = build.make(config, "metric").of(splits.languages[1])
        supplied["critic"] = Candidates(tokenizer.decode, **lengths, judged=judge.options)
    objective = build.make(config, "objective", **supplied)
    network = build.network(config, tokenizer.source_size, tokenizer.target_size, tokenizer.columns)
    if teachers is not None:
        _check_readers(teachers.models, paths, network)
    if start is not None:
        take_weights(network, start)
        log.info(
            "started from %s; vocabulary %s/%s",
            start.path,
            tokenizer.source_size,
            tokenizer.target_size,
        )
    elif settings.vectors and saved is None:
        _use_vectors(network, tokenizer, settings.vectors)
    frozen = settings.freeze or []
    freeze(network, frozen)
    shared = shared_tables(network, frozen)
    if shared:
        log.warning(
            "freeze=[%s]: %s not trained either, because the weights are the same "
            "(model.tying=%s)",
            ",".join(frozen),
            " and ".join(shared) + (" are" if len(shared) > 1 else " is"),
            settings.model["tying"],
        )
    network = network.to(device)
    return TranslationTask(
        data,
        network,
        objective,
        batching=build.make(config, "batching"),
        metric=build.make(config, "metric").of(splits.languages[1]),
        search=build.make(config, "search"),
        seed=settings.seed,
        max_validation=settings.max_validation,
        options=settings.translation,
    )


def _tokenizer_from(
    start: Checkpoint, settings: TrainSettings, filters: Filters, splits: Splits, ranks: Ranks
) -> Tokenizer:
    """That of the model that training starts from, with the pieces that the new text needs if they are asked for."""
    tokenizer = ckpt.tokenizer_from(start)
    if settings.init_vocabulary == "grow":
        train = filters.text(splits.train) if splits.train.store is None else splits.train
        source = texts(train.source, tokenizer.columns)
        new = train_once(build.make(settings.values, "tokenizer"), source, train.target, ranks)
        tokenizer = tokenizer.grown(new)
    return tokenizer.sampled(settings.values["tokenizer"]["sampling"])


def _teachers(paths: Sequence[str], device: torch.device) -> Translator:
    """The models of objective.teacher, which share one vocabulary. Raises UserError if they are no translation models."""
    found = load(paths, str(device), key="objective.teacher")
    if not isinstance(found, Translator):
        raise UserError(
            f"objective.teacher={', '.join(paths)}: is a classifier; name a model made by nmt.train"
        )
    return found


def _check_teachers(
    teachers: Translator, paths: Sequence[str], languages: tuple[str, str], tokenizer: Tokenizer
) -> None:
    """Raises UserError if they translate the other way, or have another vocabulary or read other columns."""
    named = f"objective.teacher={', '.join(paths)}"
    if teachers.languages == languages[::-1] != languages:
        source, target = teachers.languages
        raise UserError(f"{named}: translates from {source} to {target}, the other way")
    theirs = teachers.tokenizer
    if (theirs.models, theirs.lowercase) != (tokenizer.models, tokenizer.lowercase):
        raise UserError(f"{named}: has another vocabulary than the model to train")
    if theirs.columns != tokenizer.columns:
        raise UserError(
            f"{named}: reads {theirs.columns.described}, and the model to train {tokenizer.columns.described}"
        )


def _check_readers(teachers: Sequence[Seq2Seq], paths: Sequence[str], network: Seq2Seq) -> None:
    """Raises UserError if a teacher reads pictures in another way: the batches are made for the network to train."""
    for teacher, path in zip(teachers, paths, strict=True):
        theirs, ours = (_reading(each) for each in (teacher, network))
        if theirs != ours:
            raise UserError(
                f"objective.teacher={path}: reads pictures as {theirs}, and the model to train as {ours}"
            )


def _reading(network: Seq2Seq) -> str:
    """How a network reads pictures."""
    reader = network.encoder.reader
    if reader is None:
        return "none"
    longest = getattr(reader.read, "longest", None)
    return (
        f"{type(reader.read).__name__.lower()}, channels={reader.channels}"
        + f", longest={longest}" * bool(longest)
    )


def _use_vectors(network: Seq2Seq, tokenizer: Tokenizer, paths: Sequence[str | None]) -> None:
    """Word vectors of the source and of the target; with one matrix for both, the source's come first."""
    source = tokenizer.source_pieces(list(range(tokenizer.source_size)))
    target = tokenizer.target_pieces(list(range(tokenizer.target_size)))
    sides: list[tuple[Any, list[str], Sequence[str | None]]] = [
        (network.source_embedding, source, paths[:1]),
        (network.target_embedding, target, paths[1:]),
    ]
    if network.source_embedding is network.target_embedding:
        sides = [(network.source_embedding, source, paths)]
    for table, pieces, files in sides:
        given = [file for file in files if file and table is not None]
        if given:
            load_vectors(table, pieces, given, "model.embedding_size")


def _classification(
    settings: ClassifySettings, device: torch.device, saved: Checkpoint | None, ranks: Ranks
) -> ClassificationTask:
    config: Mapping[str, Any] = settings.values
    splits: LabelledSplits = build.make(config, "data").labelled()
    labels = LabelSet.of(splits.train.labels, splits.multi_label)
    if len(labels.names) < (1 if splits.multi_label else 2):
        raise UserError(
            f"{splits.train.name}: too few labels ({', '.join(labels.names) or 'none'}); give two or more"
        )
    if saved is not None and list(labels.names) != saved.meta["labels"]["names"]:
        raise UserError(
            f"resume={saved.path.parent}: the data has other labels than when this run began"
        )
    if saved is None:
        tokenizer = train_once(build.make(config, "tokenizer"), splits.train.texts, [], ranks)
    else:
        tokenizer = ckpt.tokenizer_from(saved)
    network = build.classifier(config, tokenizer.source_size, labels)
    if settings.vectors and saved is None:
        pieces = tokenizer.source_pieces(list(range(tokenizer.source_size)))
        load_vectors(network.embedding, pieces, [settings.vectors], "network.embedding_size")
    network.embedding.weight.requires_grad_(not settings.freeze)
    return ClassificationTask(
        splits,
        labels,
        tokenizer,
        network.to(device),
        batching=build.make(config, "batching"),
        metric=settings.choose_by,
        seed=settings.seed,
        max_tokens=settings.max_tokens,
    )
