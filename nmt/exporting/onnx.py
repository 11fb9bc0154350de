"""A translation model as three ONNX graphs: the encoder, the first state, and a step of the decoder. Numbers of sentences,
rows and words are free in all of them.

    encoder.onnx   source [B S], lengths [B]                → memory.… [B …]
    start.onnx     memory.… [B …]                           → state.… [B …]
    step.onnx      words [N], state.… [N …], memory.… [N …] → log_probs [N V], weights [N S], state.… [N …]

A search repeats the memory of a sentence for each of its rows. translate_onnx.py, which is written beside them, shows it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.exporting import only_model
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS, PAD, Prepared, State, map_tensors
from nmt.inference.translator import Translator
from nmt.model.seq2seq import Seq2Seq
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.storage.files import write_atomically

log = logging.getLogger(__name__)
OPSET = 17
POSITIONS = 13
"""Words of the sentence that a graph is made with."""
EXAMPLE = Path(__file__).with_name("translate_onnx.py")


class _Encode(nn.Module):
    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        return tuple(_held(self.model.encode(source, lengths)).values())


class _Start(nn.Module):
    def __init__(self, model: Seq2Seq, memory: Prepared) -> None:
        super().__init__()
        self.model, self.memory = model, memory

    def forward(self, *memory: Tensor) -> tuple[Tensor, ...]:
        return tuple(_parts(self.model.start(_filled(self.memory, memory))))


class _Step(nn.Module):
    def __init__(self, model: Seq2Seq, state: State, memory: Prepared) -> None:
        super().__init__()
        self.model, self.state, self.memory = model, state, memory

    def forward(self, words: Tensor, *held: Tensor) -> tuple[Tensor, ...]:
        size = len(_parts(self.state))
        memory = _filled(self.memory, held[size:])
        output = self.model.decode(words.unsqueeze(1), _like(self.state, held[:size]), memory)
        if self.model.copying is None:
            log_probs = torch.log_softmax(self.model.logits(output.readout), -1)
        else:
            log_probs = self.model.log_probs(output, memory)
        weights = [] if output.weights is None else [output.weights.squeeze(1)]
        return log_probs.squeeze(1), *weights, *_parts(output.state)


def write_onnx(translator: Translator, folder: Path) -> None:
    """Writes the graphs, the tokenizer, what a search has to know, and an example of it into a new folder.

    Raises UserError if the model cannot be exported, and says which part of it."""
    model = _exportable(translator)
    folder.mkdir(parents=True)
    write_graphs(model, folder)
    for name, content in zip(("source", "target"), translator.tokenizer.models, strict=True):
        write_atomically(folder / f"{name}.model", content)
    write_atomically(
        folder / "settings.json", (json.dumps(_settings(translator), indent=2) + "\n").encode()
    )
    shutil.copyfile(EXAMPLE, folder / "translate.py")


def write_graphs(model: Seq2Seq, folder: Path) -> None:
    """The three graphs of a network."""
    source, lengths = torch.full((2, POSITIONS), EOS), torch.tensor([POSITIONS, 3])
    with torch.no_grad(), _frozen(model):
        memory = model.encode(source, lengths)
        state = model.start(memory)
        held, parts = _held(memory), _parts(state)
        states = [f"state.{i}" for i in range(len(parts))]
        _write(
            _Encode(model), (source, lengths), folder / "encoder.onnx", ["source", "lengths"],
            [f"memory.{name}" for name in held],
        )  # fmt: skip
        memories = [f"memory.{name}" for name in held]
        _write(_Start(model, memory), tuple(held.values()), folder / "start.onnx", memories, states)
        outputs = [
            "log_probs",
            *(["weights"] if model.decoder.attends else []),
            *(f"next.{name}" for name in states),
        ]
        _write(
            _Step(model, state, memory), (torch.tensor([BOS, BOS]), *parts, *held.values()), folder / "step.onnx",
            ["words", *states, *memories], outputs,
        )  # fmt: skip


def _settings(translator: Translator) -> dict[str, Any]:
    search = translator.search
    width = search.width if isinstance(search, Beam) else 1
    usual = (
        isinstance(search, Beam)
        and search.penalty.name == "average"
        and not search.penalty.coverage
    )
    if not usual and not isinstance(search, Greedy):
        log.warning(
            "translate.py searches with a beam of %s by mean log-probability, not as this model does",
            width,
        )
    return {
        "languages": list(translator.languages), "bos": BOS, "eos": EOS, "pad": PAD,
        "lowercase": translator.tokenizer.lowercase, "by_word": translator.tokenizer.by_word, "width": width,
        "max_length_factor": translator.max_length_factor, "max_length_offset": translator.max_length_offset,
    }  # fmt: skip


def _exportable(translator: Translator) -> Seq2Seq:
    model = only_model(translator, "onnx")
    if model.decoder.attends and model.decoder.attention.score.heads > 1:
        raise UserError(
            "format=onnx: PyTorch's exporter fixes the length of sentences if there are several heads"
        )
    for name, module in model.named_modules():
        cell = getattr(module, "cell_name", "")
        if cell.startswith("norm_") or getattr(module, "transition_depth", 1) > 1:
            raise UserError(
                f"format=onnx: {name} has normalised gates or a deep transition, which ONNX's GRU and LSTM have not"
            )
    return model


def _held(memory: Prepared) -> dict[str, Tensor]:
    """Different tensors of a memory by their names. Those that only make the first state are among them."""
    words = memory.source_words
    named = {
        "values": memory.values,
        "mask": memory.mask,
        "final_state": memory.encoded.final_state,
        "keys": memory.keys,
        "projected_values": memory.projected_values,
        "decoder_init": memory.decoder_init,
        **({} if words is None else {"source": words.ids, "source_vectors": words.vectors}),
    }
    names = {id(tensor): name for name, tensor in reversed(named.items()) if tensor.numel()}
    return {name: tensor for name, tensor in named.items() if names.get(id(tensor)) == name}


def _filled(memory: Prepared, tensors: Sequence[Tensor]) -> Prepared:
    """A memory with other tensors, in the order of `_held`."""
    replaced = {id(old): new for old, new in zip(_held(memory).values(), tensors, strict=True)}
    return map_tensors(memory, lambda tensor: replaced.get(id(tensor), tensor))


def _parts(value: Any) -> list[Tensor]:
    """The tensors of a state, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, State):
        return [part for f in fields(value) for part in _parts(getattr(value, f.name))]
    inside = value.values() if isinstance(value, Mapping) else value
    return [part for one in inside for part in _parts(one)]


def _like(value: Any, tensors: Sequence[Tensor]) -> Any:
    """A state with other tensors."""
    left = iter(tensors)

    def rebuilt(one: Any) -> Any:
        if isinstance(one, Tensor):
            return next(left)
        if isinstance(one, State):
            return replace(one, **{f.name: rebuilt(getattr(one, f.name)) for f in fields(one)})
        return {} if isinstance(one, Mapping) else tuple(map(rebuilt, one))

    return rebuilt(value)


def _write(
    module: nn.Module, values: tuple[Tensor, ...], file: Path, inputs: list[str], outputs: list[str]
) -> None:
    """The graph that a call of the module is. Dimensions that depend on the number of sentences, rows or words are free."""
    rows = "rows" if file.stem == "step" else "sentences"
    named = zip([*inputs, *outputs], [*values, *module(*values)], strict=True)
    axes = {
        name: {0: rows}
        | {k: "positions" for k, size in enumerate(value.shape) if k and size == POSITIONS}
        for name, value in named
    }
    with _quietly():
        torch.onnx.export(
            module.eval(), values, str(file), input_names=inputs, output_names=outputs, dynamic_axes=axes,
            opset_version=OPSET, dynamo=False, do_constant_folding=True,
        )  # fmt: skip


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What the exporter warns of is tested: the graphs are run with other numbers of sentences and words."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


@contextlib.contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in trained:
            p.requires_grad_(True)
