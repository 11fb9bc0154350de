"""Builds the components of a training run from validated settings and, if given, a checkpoint."""

import inspect
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from nmt import components
from nmt.configuration.training_settings import ClassifySettings, TrainingSettings, TrainSettings
from nmt.data import LabelledSplits, Pairs, Splits, as_list
from nmt.data.filters import Filters
from nmt.data.labels import LabelSet
from nmt.data.lexicon_estimation import estimated_lexicon, read_lexicon_table
from nmt.data.preparation import PreparedData, Untrained, prepare, texts, train_once
from nmt.data.store import stored
from nmt.data.swapped_sides import SideCounts, warn_of_swapped_sides
from nmt.data.word_vectors import load_vectors
from nmt.foundation.errors import UserError
from nmt.foundation.extras import installed, require
from nmt.foundation.part_limits import broken, refuse
from nmt.foundation.ranks import ALONE, Ranks
from nmt.inference.candidates import Candidates
from nmt.inference.translator import Translator
from nmt.loading import load
from nmt.metric import Metric
from nmt.model.freezing import freeze, shared_tables
from nmt.model.precision import usable_precision
from nmt.model.seq2label import Seq2Label
from nmt.model.seq2seq import Seq2Seq
from nmt.pipeline.training_alignment import with_links
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.tokenizer import Tokenizer
from nmt.training.task import Task
from nmt.training.task.classification_task import ClassificationTask
from nmt.training.task.classification_task import fingerprints as of_classification
from nmt.training.task.translation_task import TranslationTask
from nmt.training.task.translation_task import fingerprints as of_translation
from nmt.training.tracker import TensorBoard, Tracker
from nmt.training.training_run import Parts

log = logging.getLogger(__name__)
Config = Mapping[str, Any]
VOCABULARY = (
    "source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias",
    "lexical.output.weight",
)  # fmt: skip
"""Names of network parameters with one row per subword."""
SAMPLES = 5
"""Number of validation sentences whose translations are sent to experiment trackers."""


def parts_of(
    settings: TrainingSettings,
    device: torch.device,
    ranks: Ranks = ALONE,
    saved: Checkpoint | None = None,
) -> Parts:
    """Builds all components of a run.

    settings: validated settings of nmt.train or nmt.classify
    device: device of the network
    ranks: all processes of the training, started by torchrun
    saved: checkpoint of the run to resume; None for a new run

    Raises UserError if the data, or a model named in the settings, cannot be used.
    """
    config = settings.values
    trackers = trackers_of(config) if ranks.first else []
    if isinstance(settings, ClassifySettings):
        task: Task = _classification(settings, saved, device, ranks)
    else:
        assert isinstance(settings, TrainSettings)
        task = _translation(settings, saved, device, ranks, SAMPLES if trackers else 0)
    precision = usable_precision(settings.trainer["precision"], device)
    trainer = components.make({"trainer": {**settings.trainer, "precision": precision}}, "trainer")
    if trainer.shard and not ranks.several:
        raise UserError(
            "trainer.shard=true: needs several processes; start them with torchrun, or set "
            "trainer.shard=false"
        )
    # Frozen weights have no state in the optimizer.
    weights = [p for p in task.network.parameters() if p.requires_grad]
    optimizer = components.make(config, "optimizer", parameters=weights)
    return Parts(
        task=task,
        trainer=trainer,
        optimizer=ranks.sharded(optimizer) if trainer.shard else optimizer,
        schedule=components.make(config, "schedule"),
        trackers=trackers,
        callbacks=[components.make(config, "callback")] if config.get("callback") else [],
    )


def trackers_of(config: Config) -> list[Tracker]:
    """Returns the configured experiment tracker, and TensorBoard if installed.

    Raises UserError if the package of the configured tracker is not installed.
    """
    trackers: list[Tracker] = []
    tracker = components.make(config, "tracker") if config.get("tracker") else None
    if tracker is not None and not isinstance(tracker, TensorBoard):
        require(tracker.package)
        trackers.append(tracker)
    if installed("tensorboard"):
        trackers.append(TensorBoard())
    return trackers


def fingerprints(command: str, config: Config) -> tuple[dict[str, str], dict[str, str]]:
    """Returns SHA-256 digests of the data sets that a configuration names, by name of the set:
    training and validation sets, and the test set.

    Raises UserError if the data cannot be read.
    """
    if command == "train":
        return of_translation(loaded(config, filters_of(config)))
    return of_classification(components.make(config, "data").labelled())


def filters_of(config: Config) -> Filters:
    """Returns the configured filters; they ignore the tags that the data source prepends to source
    lines."""
    tags = config["data"].get("tags") or {}
    return components.make(config, "filters", tags=tuple(tags.values()))


def loaded(config: Config, filters: Filters) -> Splits:
    """Loads the parallel data of a configuration; large training data is filtered and stored on
    disk."""
    data = components.make(config, "data")
    # Data sources of plugins may lack the parameter `keep`.
    if "keep" in inspect.signature(data.load).parameters:
        return data.load(partial(stored, where=config.get("store", "auto"), filters=filters))
    return data.load()


def _translation(
    settings: TrainSettings,
    saved: Checkpoint | None,
    device: torch.device,
    ranks: Ranks,
    samples: int,
) -> TranslationTask:
    config = settings.values
    path = settings.init if saved is None else None  # a resumed run has weights already
    initial = ckpt.read_model(path, "init", "train") if path else None
    # Loading teachers consumes random numbers, so the order is fixed for reproducibility.
    teachers = _Teachers.of(config, device)
    filters = filters_of(config)
    splits = loaded(config, filters)
    warn_of_equal_sides(splits.validation)
    typical_words = None
    if splits.mixture is None:  # a mixture may have both directions
        counts = SideCounts(splits.train)
        warn_of_swapped_sides(splits, counts)
        typical_words = counts.typical()
    tokenizer = _tokenizer(settings, saved, initial, teachers, filters, splits, ranks)
    data = prepare(splits, filters, tokenizer, ranks)
    if settings.objective.get("guided_alignment") and data.train.links is None:
        data = with_links(data, ranks)
    metric = components.make(config, "metric").of(splits.languages[1], splits.validation.target)
    trained = saved or initial
    objective = _objective(settings, trained, teachers, data, metric)
    network = _network(settings, initial, data.tokenizer)
    if settings.vectors and trained is None:
        _use_vectors(network, data.tokenizer, settings.vectors)
    if trained is not None:
        ckpt.load_lexicon(network, trained)
    elif network.lexicon is not None:
        network.lexicon.fill(_lexicon(settings, data, ranks))
    if teachers is not None:
        teachers.check(network, data, settings)
    return TranslationTask(
        data,
        network.to(device),
        objective,
        batching=components.make(config, "batching"),
        metric=metric,
        search=components.make(config, "search"),
        seed=settings.seed,
        max_validation=settings.max_validation,
        options=settings.translation,
        ranks=ranks,
        samples=samples,
        typical_words=typical_words,
    )


def warn_of_equal_sides(pairs: Pairs) -> None:
    """Logs a warning if source and target are the same text."""
    if list(pairs.source) == list(pairs.target):
        log.warning(
            "%s: source and target are equal; check data.source and data.target", pairs.name
        )


def _tokenizer(
    settings: TrainSettings,
    saved: Checkpoint | None,
    initial: Checkpoint | None,
    teachers: "_Teachers | None",
    filters: Filters,
    splits: Splits,
    ranks: Ranks,
) -> Tokenizer | Untrained:
    """Returns the tokenizer of the resumed run, of the initial model or of the teachers, else the
    settings of a tokenizer to train."""
    if saved is not None:
        return ckpt.tokenizer_from(saved)
    sampling = settings.tokenizer["sampling"]
    if initial is not None:
        tokenizer = ckpt.tokenizer_from(initial)
        if settings.init_vocabulary == "grow":
            # Stored pairs have already passed the filters.
            train = filters.text(splits.train) if splits.train.store is None else splits.train
            source = texts(train.source, tokenizer.columns)
            untrained = components.make(settings.values, "tokenizer")
            tokenizer = tokenizer.grown(train_once(untrained, source, train.target, ranks))
        return replace(tokenizer, sampling=sampling)
    if teachers is not None:
        return replace(teachers.translator.tokenizer, sampling=sampling)
    return components.make(settings.values, "tokenizer")


def _objective(
    settings: TrainSettings,
    trained: Checkpoint | None,
    teachers: "_Teachers | None",
    data: PreparedData,
    metric: Metric,
) -> Any:
    """Builds the objective of the training.

    The constructor of the objective receives the teachers in its parameter `teachers`, and a
    function that generates candidate translations in its parameter `candidate_generator`, if it has
    these parameters.
    """
    supplied: dict[str, Any] = {}
    if teachers is not None:
        supplied["teachers"] = teachers.translator.models
    if "candidate_generator" in _arguments(settings.values):
        if trained is None:
            log.warning(
                "objective: this objective learns from the model's own translations, which "
                "are random before training; train with objective=cross_entropy first, then "
                "set init=RUN_DIR"
            )
        supplied["candidate_generator"] = Candidates(
            data.tokenizer.decode,
            max_length_factor=settings.translation["max_length_factor"],
            max_length_offset=settings.translation["max_length_offset"],
            metric_settings=metric.options,
        )
    return components.make(settings.values, "objective", **supplied)


def _arguments(config: Config) -> Mapping[str, Any]:
    """Returns the names of the constructor parameters of the configured objective."""
    return inspect.signature(components.class_of("objective", config["objective"])).parameters


def _network(settings: TrainSettings, initial: Checkpoint | None, tokenizer: Tokenizer) -> Seq2Seq:
    """Builds the translation network with random weights, or with the weights of the initial
    model. Freezes the configured components, and logs a warning for components that share the
    frozen weights."""
    sizes = tokenizer.source_size, tokenizer.target_size
    network = components.network(settings.values, *sizes, tokenizer.columns)
    if initial is not None:
        _take_weights(network, initial)
        log.info(
            "loaded initial weights from %s (vocabulary: %s source and %s target subwords)",
            initial.path,
            *sizes,
        )
    frozen = settings.freeze or []
    freeze(network, frozen)
    for shared in shared_tables(network, frozen):
        log.warning(
            "freeze=[%s]: also freezes %s, which shares the frozen weights (model.tying=%s)",
            ",".join(frozen),
            shared,
            settings.model["tying"],
        )
    return network


def _take_weights(network: Seq2Seq, saved: Checkpoint) -> None:
    """Copies the weights of a trained model into a network.

    The network's vocabulary may have additional subwords at its end. The embeddings of additional
    subwords keep their initial values. The output bias of additional subwords is that of the least
    probable trained subword.

    Raises UserError if the shape of any other parameter differs.
    """
    weights = saved.weights
    parameters = dict(network.named_parameters())
    wrong = sorted(
        {*(parameters.keys() ^ weights.keys())}
        | {
            name
            for name in parameters.keys() & weights.keys()
            if not _fits(name, parameters[name].shape, weights[name].shape)
        }
    )
    if wrong:
        raise UserError(
            f"init={saved.path}: the weights do not match the network ({', '.join(wrong[:3])} "
            "…); fine-tuning needs the same sizes and components as the initial model"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            rows = parameter[: len(weights[name])] if parameter.dim() else parameter
            rows.copy_(weights[name])
        # New subwords start as improbable as the least probable trained subword.
        network.output.bias[len(weights["output.bias"]) :] = weights["output.bias"].min()


def _fits(name: str, shape: torch.Size, saved: torch.Size) -> bool:
    """Returns whether a saved parameter has the shape of the network's parameter. A parameter with
    one row per token may have fewer rows.
    """
    has_more_pieces = name in VOCABULARY and shape[1:] == saved[1:] and shape[0] >= saved[0]
    return shape == saved or has_more_pieces


def _lexicon(
    settings: TrainSettings, data: PreparedData, ranks: Ranks
) -> Mapping[str, torch.Tensor]:
    """Returns the translation lexicon of a new network, from a file or the training text."""
    table: Mapping[str, torch.Tensor] = {}
    if ranks.first:
        began = time.monotonic()
        file = settings.model["lexicon"]
        if file == "auto":
            table = estimated_lexicon(data.train, data.kept, data.tokenizer.source_size)
        else:
            table = read_lexicon_table(file, data.tokenizer)
        log.info(
            "lexicon: estimated %s entries for %s of %s source tokens, in %.1f s",
            f"{int((table['probabilities'] > 0).sum()):,}",
            f"{int((table['probabilities'][:, 0] > 0).sum()):,}",
            f"{data.tokenizer.source_size:,}",
            time.monotonic() - began,
        )
    return ranks.of_first(table)


@dataclass(frozen=True)
class _Teachers:
    """Teacher models of knowledge distillation (objective.teacher).

    translator: ensemble of all teachers
    paths: path of each teacher
    """

    translator: Translator
    paths: Sequence[str]

    @classmethod
    def of(cls, config: Config, device: torch.device) -> "_Teachers | None":
        """Loads the teachers; returns None if the objective uses no teachers.

        Raises UserError if a teacher is a classifier.
        """
        if "teachers" not in _arguments(config):
            return None
        paths = as_list(config["objective"]["teacher"])
        teachers = load(paths, str(device), key="objective.teacher")
        if not isinstance(teachers, Translator):
            raise UserError(
                f"objective.teacher={', '.join(paths)}: every teacher must be a translation "
                "model, not a classifier"
            )
        return cls(teachers, paths)

    def check(self, network: Seq2Seq, data: PreparedData, settings: TrainSettings) -> None:
        """Raises ConfigErrors if the teachers cannot read the batches of the student network.

        Teachers must have the same languages, vocabulary, source columns and image input as the
        student.
        """
        key = "objective.teacher"
        languages = self.translator.languages
        is_reversed = languages == data.splits.languages[::-1] != data.splits.languages
        theirs = self.translator.tokenizer
        ours = data.tokenizer
        columns = (
            f"the teacher reads {theirs.columns.described}, but the student reads "
            f"{ours.columns.described}"
        )
        joint = "needs one vocabulary for both languages, but the teacher has two; set {}"
        reader = str(network.encoder.reader)  # models without images all give "None"
        readers = [str(teacher.encoder.reader) for teacher in self.translator.models]
        refuse(
            broken(
                (
                    is_reversed,
                    key,
                    f"the teacher translates from {' to '.join(languages)}, opposite to the "
                    "student",
                    self.paths,
                ),
                (
                    (theirs.models, theirs.lowercase) != (ours.models, ours.lowercase),
                    key,
                    "the teacher must have the same vocabulary as the student",
                    self.paths,
                ),
                (theirs.columns != ours.columns, key, columns, self.paths),
                *(
                    (not ours.joint, needing, joint.format(instead))
                    for needing, instead in Seq2Seq.needs_joint(settings.model).items()
                ),
                *(
                    (
                        of_teacher != reader,
                        key,
                        f"the teacher reads images as {of_teacher}, but the student as {reader}",
                        path,
                    )
                    for of_teacher, path in zip(readers, self.paths, strict=True)
                ),
            )
        )


def _use_vectors(network: Seq2Seq, tokenizer: Tokenizer, paths: Sequence[str | None]) -> None:
    """Loads pretrained word vectors into the embeddings.

    network: network whose embeddings are replaced
    tokenizer: tokenizer of the network
    paths: files for source and target; None for no file

    If both languages share one embedding, source vectors take precedence.
    """
    source = tokenizer.source_pieces(list(range(tokenizer.source_size)))
    target = tokenizer.target_pieces(list(range(tokenizer.target_size)))
    sides: list[tuple[Any, list[str], Sequence[str | None]]] = [
        (network.source_embedding, source, paths[:1]),
        (network.target_embedding, target, paths[1:]),
    ]
    if network.source_embedding is network.target_embedding:
        # one embedding table for both languages
        sides = [(network.source_embedding, source, paths)]
    for table, pieces, files in sides:
        names = [file for file in files if file]
        if names:
            load_vectors(table, pieces, names, "model.embedding_size")


def _classification(
    settings: ClassifySettings, saved: Checkpoint | None, device: torch.device, ranks: Ranks
) -> ClassificationTask:
    config = settings.values
    splits: LabelledSplits = components.make(config, "data").labelled()
    labels = LabelSet.of(splits.train.labels, splits.train.multi_label)
    if len(labels.names) < (1 if splits.train.multi_label else 2):
        raise UserError(
            f"{splits.train.name}: too few different labels ({', '.join(labels.names) or 'none'}); "
            f"a classifier needs at least {1 if splits.train.multi_label else 2}"
        )
    if saved is not None:
        if list(labels.names) != saved.meta["labels"]["names"]:
            raise UserError(
                f"resume={saved.path.parent}: the labels in the data have changed since the "
                "training began; restore the data, or start a new training"
            )
        tokenizer = ckpt.tokenizer_from(saved)
    else:
        tokenizer = train_once(components.make(config, "tokenizer"), splits.train.texts, [], ranks)
    network: Seq2Label = components.classifier(config, tokenizer.source_size, labels)
    if settings.vectors and saved is None:
        pieces = tokenizer.source_pieces(list(range(tokenizer.source_size)))
        load_vectors(network.embedding, pieces, [settings.vectors], "network.embedding_size")
    network.embedding.weight.requires_grad_(not settings.freeze)
    return ClassificationTask(
        splits,
        labels,
        tokenizer,
        network.to(device),
        batching=components.make(config, "batching"),
        metric=settings.choose_by,
        seed=settings.seed,
        max_tokens=settings.max_tokens,
        ranks=ranks,
    )
