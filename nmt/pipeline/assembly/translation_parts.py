"""Components of a translation task: data, tokenizer, network and objective."""

import inspect
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from nmt import components
from nmt.configuration.training_settings import TrainSettings
from nmt.data import Pairs, Splits, as_list
from nmt.data.copied_pairs import with_copied_pairs
from nmt.data.filters import Filters
from nmt.data.lexicon_estimation import estimated_lexicon, read_lexicon_table
from nmt.data.lines import find_file
from nmt.data.overlap import training_rows
from nmt.data.preparation import PreparedData, Untrained, prepare, texts, train_once
from nmt.data.store import stored
from nmt.data.swapped_sides import SideCounts, warn_of_swapped_sides
from nmt.foundation.errors import UsageError
from nmt.foundation.ranks import Ranks
from nmt.model.freezing import freeze, frozen_tables
from nmt.model.seq2seq import Seq2Seq
from nmt.pipeline.assembly.initial_weights import take_weights, use_vectors
from nmt.pipeline.assembly.objective_parts import Teachers, build_objective
from nmt.pipeline.assembly.training_alignment import with_links
from nmt.storage import checkpoint as ckpt
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.sentencepiece_models import can_be_sampled
from nmt.training.task.translation_task import TranslationTask

log = logging.getLogger(__name__)


def translation_task(
    settings: TrainSettings,
    saved: ckpt.Checkpoint | None,
    device: torch.device,
    ranks: Ranks,
    samples: int,
) -> TranslationTask:
    config = settings.values
    path = settings.init if saved is None else None  # a resumed run has weights already
    initial = ckpt.read_model(path, "init", "train") if path else None
    # Loading teachers consumes random numbers, so the order is fixed for reproducibility.
    teachers = Teachers.of(config, device)
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
    objective = build_objective(settings, trained, teachers, data, metric)
    network = _network(settings, initial, data.tokenizer)
    if settings.vectors and trained is None:
        use_vectors(network, data.tokenizer, settings.vectors)
    _set_lexicon(network, settings, trained, data, splits.languages, ranks)
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


def check_new_training(settings: TrainSettings) -> None:
    """Checks settings of a new training that would otherwise fail late, or filter wrong text.

    Raises UserError if the lexicon or a teacher is missing, or if a filter of the source text would
    also count images, factors or further texts, which are columns of the same line.
    """
    run = settings.view
    filters = settings.filters
    why = "supports only source lines of one text, without images and factors"
    if run.pictures or run.value("data.factors") or run.sources > 1:
        if filters.get("drop_identical"):
            raise UsageError(f"filters.drop_identical=true: {why}")
        if filters.get("max_symbols", 1.0) < 1:
            raise UsageError(f"filters.max_symbols={filters['max_symbols']}: {why}")
    if run.sources > 1 and filters.get("max_ratio"):
        # The filter would compare the target with the sum of all source texts.
        raise UsageError(f"filters.max_ratio={filters['max_ratio']}: supports only one source text")
    lexicon = settings.model.get("lexicon")
    if lexicon not in (None, "auto") and not settings.init:  # init= has a lexicon already
        find_file(lexicon, f"model.lexicon={lexicon}")
    for path in as_list(settings.objective.get("teacher")):
        ckpt.find_checkpoint(path, "objective.teacher")


def filters_of(config: components.Config) -> Filters:
    """Returns the configured filters; they ignore the tags that the data source prepends to source
    lines."""
    tags = config["data"].get("tags") or {}
    return components.make(config, "filters", tags=tuple(filter(None, tags.values())))


def loaded(config: components.Config, filters: Filters) -> Splits:
    """Loads the parallel data of a configuration, and adds copied pairs if configured. Large
    training data is filtered and stored on disk."""
    data = components.make(config, "data")
    # Data sources of plugins may lack the parameter `keep`.
    has_keep = "keep" in inspect.signature(data.load).parameters
    keep = partial(stored, where=config.get("store", "auto"), filters=filters)
    splits = data.load(keep) if has_keep else data.load()
    share = config.get("copied_pairs", 0.0)  # not in configurations of older versions
    return with_copied_pairs(splits, share, filters) if share else splits


def warn_of_equal_sides(pairs: Pairs) -> None:
    """Logs a warning if source and target are the same text."""
    if list(pairs.source) == list(pairs.target):
        log.warning(
            "%s: source and target are identical; check data.source and data.target", pairs.name
        )


def _tokenizer(
    settings: TrainSettings,
    saved: ckpt.Checkpoint | None,
    initial: ckpt.Checkpoint | None,
    teachers: Teachers | None,
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
            train = filters.text(splits.train)
            if filters.drop_held_out:
                train = train.select(training_rows(replace(splits, train=train), filters))
            columns = tokenizer.columns
            # An image-only source has no words; its vocabulary is a placeholder.
            source = texts(train.source, columns) if columns.sources else train.target
            untrained = components.make(settings.values, "tokenizer")
            tokenizer = tokenizer.grown(train_once(untrained, source, train.target, ranks))
        return _sampling(tokenizer, sampling, "init")
    if teachers is not None:
        return _sampling(teachers.translator.tokenizer, sampling, "objective.teacher")
    return components.make(settings.values, "tokenizer")


def _sampling(tokenizer: Tokenizer, sampling: float, owner: str) -> Tokenizer:
    """Returns the tokenizer of another model that samples segmentations of training text.

    sampling: probability to sample, of the setting tokenizer.sampling
    owner: setting that names the other model

    Raises UsageError if the segmentations cannot be sampled.
    """
    if sampling and not all(map(can_be_sampled, tokenizer.models)):
        raise UsageError(
            f"tokenizer.sampling={sampling:g}: the segmentations of the vocabulary of the model "
            f"`{owner}` cannot be sampled; set tokenizer.sampling=0"
        )
    return replace(tokenizer, sampling=sampling)


def _network(
    settings: TrainSettings, initial: ckpt.Checkpoint | None, tokenizer: Tokenizer
) -> Seq2Seq:
    """Builds the translation network with random weights, or with the weights of the initial
    model. Freezes the configured components, and logs a warning for components that share the
    frozen weights."""
    sizes = tokenizer.source_size, tokenizer.target_size
    network = components.network(settings.values, *sizes, tokenizer.columns)
    if initial is not None:
        take_weights(network, initial)
        log.info(
            "loaded initial weights from %s (vocabulary: %s source and %s target subwords)",
            initial.path,
            *sizes,
        )
    frozen = settings.freeze or []
    freeze(network, frozen)
    named = {name.removesuffix(".weight") for name in frozen}
    for shared in [table for table in frozen_tables(network) if table not in named]:
        log.warning(
            "freeze=[%s]: also freezes %s, which shares the frozen weights (model.tying=%s)",
            ",".join(frozen),
            shared,
            settings.model["tying"],
        )
    return network


def _set_lexicon(
    network: Seq2Seq,
    settings: TrainSettings,
    trained: ckpt.Checkpoint | None,
    data: PreparedData,
    languages: Sequence[str],
    ranks: Ranks,
) -> None:
    """Fills the translation lexicon of a network that has one.

    The lexicon of a resumed run or of an initial model is kept. If the initial model translates
    between other languages, a new lexicon is estimated from the training text.

    trained: checkpoint of the resumed run or initial model; None for a new network
    languages: names of the source and target languages of the training text
    """
    if network.lexicon is None:
        return
    file = settings.model["lexicon"]
    if trained is not None:
        if trained.languages in ((), tuple(languages)):
            ckpt.load_lexicon(network, trained)
            return
        file = "auto"
        log.warning(
            "init=%s: the model translates %s, but the languages of the training text are %s; "
            "the lexicon is estimated again",
            settings.init,
            " → ".join(trained.languages),
            " → ".join(languages),
        )
    network.lexicon.fill(ranks.on_first(partial(_lexicon, file, data)))


def _lexicon(file: str, data: PreparedData) -> Mapping[str, torch.Tensor]:
    """Returns a translation lexicon, from a file or, for "auto", the training text."""
    began = time.monotonic()
    if file == "auto":
        table = estimated_lexicon(data.train, data.kept, data.tokenizer.source_size)
    else:
        table = read_lexicon_table(file, data.tokenizer)
    log.info(
        "lexicon: %s %s entries for %s of %s source tokens, in %.1f s",
        "estimated" if file == "auto" else "read",
        f"{int((table['probabilities'] > 0).sum()):,}",
        f"{int((table['probabilities'][:, 0] > 0).sum()):,}",
        f"{data.tokenizer.source_size:,}",
        time.monotonic() - began,
    )
    return table
