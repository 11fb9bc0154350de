"""Small configurations, networks and batches for the tests."""

import copy
import functools
import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from coverings import product
from typechecker import unchecked

from nmt.configuration import compose as composition
from nmt.configuration import overrides as grammar
from nmt.configuration import yaml_files
from nmt.configuration.yaml_files import CONF
from nmt.foundation.interfaces import BOS, EOS, PAD, Batch, Pictures
from nmt.foundation.part_limits import refuse

SIZES = [
    "model.embedding_size=6",
    "encoder.hidden_size=4",
    "decoder.hidden_size=8",
    "decoder.readout_size=6",
]
NO_DROPOUT = [
    "model.dropout=0",
    "model.readout_dropout=0",
    "encoder.dropout=0",
    "decoder.dropout=0",
]


def choices(group: str) -> list[str]:
    """The YAML files of a config group."""
    return sorted(path.stem for path in Path(CONF, group).glob("*.yaml"))


PICTURED = ("grid", "convolution", "bidirectional+grid", "bidirectional+convolution")
"""Encoders that read pictures: test_pictures.py."""


def compose(*overrides: str, name: str = "train") -> dict:
    """A command's configuration as plain containers, unchecked."""
    return copy.deepcopy(
        _composed(name, overrides, yaml_files.CONF, tuple(yaml_files.added_folders))
    )


@functools.cache
def _composed(name: str, overrides: tuple[str, ...], *_) -> dict:
    """Composes as `composition.compose` does. Hydra composes once per choice, not once per combination."""
    parsed, _ = grammar.parse(overrides)
    groups = yaml_files.groups_of(name)
    choices = {o.key_or_group: o.value() for o in parsed if o.key_or_group in groups}
    if {"experiment", "data"} & {*choices} or len(choices) < 2:
        return composition.compose(name, overrides)
    config = composition.compose_partly(name, [])[0]
    for group, choice in choices.items():
        shared = _unresolved(name, group, choice, tuple(yaml_files.added_folders))
        config[group] = copy.deepcopy(shared)
    values = [o for o in parsed if o.key_or_group not in groups]
    refuse(grammar.apply(config, values))
    return composition.resolve(config)


@functools.cache
def _unresolved(name: str, group: str, choice: str, *_):
    return composition.compose_partly(name, [f"{group}={choice}"])[0][group]


def forget_configurations() -> None:
    """Clears the caches of files in conf/ and in the folders of --config-dir."""
    for function in (composition._cached, grammar._parsed, yaml_files._options):
        function.cache_clear()


def trained(folder: Path, *overrides: str, name: str = "train") -> Path:
    """The folder of a run that is made here and now."""
    _train(name, *overrides, f"run_dir={folder}")
    return folder


def resumed(folder: Path, *overrides: str) -> None:
    """Resumes a run in this process."""
    _train("train", f"resume={folder}", *overrides)


def _train(name: str, *overrides: str) -> None:
    """Trains, and closes the log files of the run."""
    from nmt.configuration.configure import configure
    from nmt.pipeline.run_training import train

    with unchecked():
        train(configure(name, overrides))
    for handler in logging.getLogger("nmt").handlers[:]:
        logging.getLogger("nmt").removeHandler(handler)
        handler.close()


def of_words(keys: list[str], overrides) -> list[str]:
    """Keys of an encoder of words; with an encoder of words and pictures, they are nested."""
    nested = any(text.startswith("encoder=bidirectional+") for text in overrides)
    return [text.replace("encoder.", "encoder.words.") for text in keys] if nested else keys


def network(decoder: str, attention: str, *overrides: str, vocabulary: int = 11):
    """A tiny network in float64, in evaluation mode."""
    from nmt import components

    sizes = [*SIZES, *NO_DROPOUT]
    if {"encoder=grid", "encoder=convolution"} & {*overrides}:  # nothing between layers
        sizes.remove("encoder.dropout=0")
    sizes = of_words(sizes, overrides)
    config = compose(f"decoder={decoder}", f"attention={attention}", *sizes, *overrides)
    torch.manual_seed(1)
    model = components.network(config, vocabulary, vocabulary).double().eval()
    if model.lexicon is not None:
        model.lexicon.fill(lexicon_table(vocabulary))
    return model


def lexicon_table(vocabulary: int) -> dict[str, torch.Tensor]:
    """A lexicon of up to three different target tokens per source token; some rows are shorter."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.stack(
        [torch.randperm(vocabulary, generator=generator)[:3] for _ in range(vocabulary)]
    )
    probabilities = torch.rand(vocabulary, 3, generator=generator, dtype=torch.float64) / 3
    short = torch.rand(vocabulary, generator=generator) < 0.3
    tokens[short, 1:] = 0
    probabilities[short, 1:] = 0
    return {"tokens": tokens, "probabilities": probabilities}


@dataclass(frozen=True)
class Banned:
    """A token sequence that a search must not write."""

    tokens: tuple[int, ...]

    @property
    def memory(self):
        return len(self.tokens)

    def __call__(self, written):
        begun = len(self.tokens) - 1
        is_begun = tuple(written[len(written) - begun :]) == self.tokens[:-1]
        return {self.tokens[-1]} if is_begun and begun <= len(written) else set()


def banned(*sequences):
    """Functions of a request that exclude token sequences."""
    return tuple(map(Banned, sequences))


def pairs_of_choices():
    """Parameters of a test: every decoder with every score it can have. By default, each occurs once."""

    def allowed(decoder, score):
        return (decoder == "fixed") == (score == "none")

    return product(choices("decoder"), choices("attention"), allowed=allowed, large=True)


def batch(lengths=(5, 3, 4), target_lengths=(4, 6, 2), vocabulary: int = 11) -> Batch:
    """Random sentences of the given lengths, EOS included."""
    generator = torch.Generator().manual_seed(3)

    def ids(sizes):
        out = torch.full((len(sizes), max(sizes)), PAD)
        for row, size in zip(out, sizes, strict=True):
            row[: size - 1] = torch.randint(4, vocabulary, (size - 1,), generator=generator)
            row[size - 1] = EOS
        return out

    source, targets = ids(lengths), ids(target_lengths)
    inputs = torch.full_like(targets, PAD)
    inputs[:, 1:] = targets[:, :-1].masked_fill(targets[:, :-1] == EOS, PAD)
    inputs[:, 0] = BOS
    return Batch(
        source=source,
        source_lengths=torch.tensor(lengths),
        inputs=inputs,
        targets=targets,
        num_tokens=sum(target_lengths),
    )


def with_pictures(data: Batch, channels: int) -> Batch:
    """The batch with a random picture for each sentence."""
    values = torch.rand(
        len(data.source), 9, 12, channels, generator=torch.Generator().manual_seed(4)
    )
    return replace(
        data, pictures=Pictures(values, torch.tensor([[9, 12]] * len(values)), even=True)
    )
