"""Export of a translation model as three ONNX graphs: encoder, initial decoder state, decoder step.

B is the number of sentences, S of source positions, N of hypotheses, V the vocabulary size. B, S
and N are dynamic.

    encoder.onnx   source [B S], lengths [B]                → memory.… [B …]
    start.onnx     memory.… [B …]                           → state.… [B …]
    step.onnx      words [N], state.… [N …], memory.… [N …] → log_probs [N V], weights [N S],
                                                              next.state.… [N …]

A search repeats the memory of a sentence for each of its hypotheses. translate_onnx.py is an
example; the export contains a copy as translate.py.
"""

import copy
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.exporting import exported_beam, only_model, write_tokenizer
from nmt.foundation.capture import tensors_of
from nmt.foundation.errors import UsageError
from nmt.foundation.interfaces import BOS, EOS, PAD, Prepared, State, map_tensors
from nmt.inference.translator import Translator
from nmt.model.layers.recurrence import Recurrent
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.files import write_atomically

OPSET = 17
POSITIONS = 13
"""Number of source positions of the example input for tracing; no other dimension has this size."""
EXAMPLE = Path(__file__).with_name("translate_onnx.py")


class _Graph(nn.Module):
    """Module that wraps a function of tensors, for the ONNX exporter.

    model: network whose weights the function uses
    function: function from the input tensors to the output tensors
    """

    def __init__(self, model: Seq2Seq, function: Callable[..., Iterable[Tensor]]) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.function(*inputs))


def write_onnx(translator: Translator, folder: Path) -> None:
    """Writes the graphs, tokenizer, search settings and an example script into an empty folder.

    Raises UsageError if the model cannot be exported.
    """
    model = check_exportable(translator)
    write_graphs(model, folder)
    write_tokenizer(translator.tokenizer, folder)
    settings = json.dumps(_settings(translator), indent=2) + "\n"
    write_atomically(folder / "settings.json", settings.encode())
    shutil.copyfile(EXAMPLE, folder / "translate.py")


@torch.no_grad()
def write_graphs(model: Seq2Seq, folder: Path) -> None:
    """Writes the three graphs of a network: encoder.onnx, start.onnx and step.onnx."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    # Two sentences of different lengths: no size is 1, and the mask is not constant.
    source = torch.full((2, POSITIONS), EOS)  # [B, S]
    lengths = torch.tensor([POSITIONS, 3])
    memory = model.encode(source, lengths)
    state = model.start(memory)

    def encode(source: Tensor, lengths: Tensor) -> Iterable[Tensor]:
        return _named(model.encode(source, lengths)).values()

    def start(*memories: Tensor) -> list[Tensor]:
        return tensors_of(model.start(_filled(memory, memories)))

    def step(words: Tensor, *inputs: Tensor) -> list[Tensor]:
        remaining = iter(inputs)
        states = map_tensors(state, lambda _: next(remaining))
        return _step(model, words, states, _filled(memory, list(remaining)))

    memories = {f"memory.{name}": tensor for name, tensor in _named(memory).items()}
    states = {f"state.{i}": tensor for i, tensor in enumerate(tensors_of(state))}
    encoded = {"source": source, "lengths": lengths}
    words = {"words": torch.tensor([BOS, BOS])}
    weights = ["weights"] if model.decoder.attends else []
    outputs = ["log_probs", *weights, *(f"next.{name}" for name in states)]
    _write(_Graph(model, encode), encoded, [*memories], folder / "encoder.onnx")
    _write(_Graph(model, start), memories, [*states], folder / "start.onnx")
    _write(_Graph(model, step), words | states | memories, outputs, folder / "step.onnx")


def _step(model: Seq2Seq, words: Tensor, state: State, memory: Prepared) -> list[Tensor]:
    """Returns the log-probabilities [N, V], the attention weights [N, S] (if any), and the next
    state.
    """
    output = model.decode(words.unsqueeze(1), state, memory)  # words: [N, 1]
    if model.copying is None:
        log_probs = torch.log_softmax(model.output_layer.logits(output.readout), -1)
    else:
        log_probs = model.output_layer.log_probs(output, memory)
    weights = [] if output.weights is None else [output.weights.squeeze(1)]
    return [log_probs.squeeze(1), *weights, *tensors_of(output.state)]


def _settings(translator: Translator) -> dict[str, Any]:
    return {
        "languages": list(translator.languages),
        "bos": BOS,
        "eos": EOS,
        "pad": PAD,
        "lowercase": translator.tokenizer.lowercase,
        "by_word": translator.tokenizer.by_word,
        "width": exported_beam(translator.search, "onnx", ["average"]).width,
        "max_source": translator.max_source,
        "max_length_factor": translator.max_length_factor,
        "max_length_offset": translator.max_length_offset,
        "no_repeat_ngram_size": translator.no_repeat_ngram_size,
    }


def check_exportable(translator: Translator) -> Seq2Seq:
    """Returns the network of a translator. Raises UsageError if ONNX does not support the
    network."""
    model = only_model(translator, "onnx")
    if model.lexicon is not None:
        raise UsageError(
            "format=onnx: a model with a translation lexicon is not supported; use format=html, or "
            "train a model with model.lexicon=null"
        )
    if model.decoder.attends and model.decoder.attention.score.heads > 1:
        raise UsageError(
            "format=onnx: several attention heads are not supported, because PyTorch's exporter "
            "would fix the sentence length; use format=html"
        )
    for name, module in model.named_modules():
        if isinstance(module, Recurrent) and not module.is_torch_layer:
            raise UsageError(
                f"format=onnx: the {name.partition('.')[0]} has layer-normalised gates, a deep "
                "transition or a cell of your own, which ONNX's GRU and LSTM do not support; for a "
                "cell of nmt, use format=html"
            )
    return model


def _named(memory: Prepared) -> dict[str, Tensor]:
    """Returns the tensors of an encoder memory by name, including those for the decoder's initial
    state.

    A tensor that the memory contains under two names, such as `values` and `projected_values`, is
    returned under the first name only.
    """
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
    """Returns a copy of an encoder memory whose tensors are replaced.

    tensors: new tensors, in the order of the ONNX graph's inputs (`_named`)
    """
    replaced = {id(old): new for old, new in zip(_named(memory).values(), tensors, strict=True)}
    return map_tensors(memory, lambda tensor: replaced.get(id(tensor), tensor))


def _write(module: nn.Module, inputs: dict[str, Tensor], outputs: list[str], file: Path) -> None:
    """Traces a module with example inputs, and writes the ONNX graph.

    module: module to trace
    inputs: example inputs by name
    outputs: names of the outputs
    file: path of the graph
    """
    values = tuple(inputs.values())
    rows = "rows" if file.stem == "step" else "sentences"
    # Sizes that depend on the example are dynamic; all other sizes are constants of the model.
    named = dict(zip([*inputs, *outputs], [*values, *module(*values)], strict=True))
    axes = {}
    for name, value in named.items():
        positions = [axis for axis, size in enumerate(value.shape) if axis and size == POSITIONS]
        axes[name] = {0: rows, **dict.fromkeys(positions, "positions")}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    # Suppress warnings about constant sizes; tests run the graphs with other sizes.
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            module.eval(),
            values,
            str(file),
            input_names=[*inputs],
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
            do_constant_folding=True,
        )
