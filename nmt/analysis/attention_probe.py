"""Calls attention code, such as functions, modules and decoders, whatever its signature.

The roles of the arguments are known. Tensor layouts are tried until a call returns attention
weights or a context. All dimensions of the example have different sizes, so that a result is
recognised by its shape.

In shapes, B is the number of sentences, S of source positions, P the size of the query and M the
size of the memory.
"""

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nmt.analysis.laws import SkippedLaw
from nmt.foundation.errors import first_line

LENGTHS = (6, 4, 1)
"""Lengths of the source sentences in the example input, in positions. Shorter sentences are padded
to the longest."""
SIZE = 8
"""Size P of the query vectors in the example input."""
MASKED = 0.01
"""Total influence of padding below which a mask layout counts as correct."""


@dataclass(frozen=True)
class AttentionExample:
    """Example input for the tested attention code.

    query: query vector of each sentence [B, P]
    memory: source annotations [B, S, M]
    mask: True for real positions [B, S]
    """

    query: Tensor
    memory: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Answer:
    """Output of the tested attention code.

    weights: attention weights [B, S]; None if not returned
    context: context vectors [B, M]; None if not returned
    """

    weights: Tensor | None
    context: Tensor | None

    @property
    def output(self) -> Tensor:
        """Attention weights, or the context if the code returns no weights."""
        output = self.context if self.weights is None else self.weights
        assert output is not None
        return output


LAYOUTS: Mapping[str, Mapping[str, Callable[[Tensor], Tensor | None]]] = {
    "query": {
        "[B, P]": lambda query: query,
        "[B, 1, P]": lambda query: query.unsqueeze(1),
        "[1, B, P]": lambda query: query.unsqueeze(0),
    },
    "memory": {
        "[B, S, M]": lambda memory: memory,
        "[S, B, M]": lambda memory: memory.transpose(0, 1),
        "[S, M]": lambda memory: memory.squeeze(0),
    },
    "mask": {
        "[B, S], true for words": lambda mask: mask,
        "[B, S], true for padding": lambda mask: ~mask,
        "[B, 1, S], true for words": lambda mask: mask.unsqueeze(1),
        "[B, 1, S], true for padding": lambda mask: ~mask.unsqueeze(1),
        "[S, B], true for words": lambda mask: mask.transpose(0, 1),
        "[S, B], true for padding": lambda mask: ~mask.transpose(0, 1),
        "[B, 1, 1, S], true for words": lambda mask: mask[:, None, None],
        "[B, S], 0 for words and -inf for padding": lambda mask: mask.double().log(),
        "[B, 1, S], 0 for words and -inf for padding": lambda mask: (
            mask.double().log().unsqueeze(1)
        ),
    },
    "lengths": {"[B]": lambda mask: mask.sum(1)},
    "previous": {
        "None": lambda mask: None,
        "[B, S], uniform": lambda mask: mask.double() / mask.sum(1, keepdim=True),
        "[B, 2, S], uniform": lambda mask: (
            (mask.double() / mask.sum(1, keepdim=True)).unsqueeze(1).expand(-1, 2, -1)
        ),
    },
    "tokens": {
        "[B]": lambda mask: torch.ones(len(mask), dtype=torch.long),
        "[B, 1]": lambda mask: torch.ones(len(mask), 1, dtype=torch.long),
        "[1, B]": lambda mask: torch.ones(1, len(mask), dtype=torch.long),
    },
}
"""Tensor layouts that are tried, in order, for a parameter of each role, such as query or mask."""


class Probe:
    """Wrapper that calls attention code with tensors in the layouts that the code expects.

    function: function or module to call
    roles: role of each parameter that gets an argument, a key of LAYOUTS
    memory_size: size M of the memory vectors

    Raises ValueError if no layout returns weights or a context.
    """

    def __init__(
        self, function: Callable[..., Any], roles: Mapping[str, str], memory_size: int
    ) -> None:
        self.function = function
        self.memory_size = memory_size
        self.roles = roles
        self.first_error = ""
        """Type and message of the exception of the first call that failed."""
        # The tested code may support only one sentence at a time.
        for lengths in (LENGTHS, LENGTHS[:1]):
            self.lengths = lengths
            self.layouts = self._find_layouts()
            if self.layouts:
                return
        raise ValueError(
            f"no call of the code returned attention weights for {len(LENGTHS)} sentences and "
            f"{max(LENGTHS)} source positions. Wrap the code in a function that computes "
            "the attention weights [B, S] from query [B, P], memory [B, S, M] and mask [B, S]. "
            "The sizes are B sentences, S source positions, query size P and memory size M. The "
            f"first call, with tensors in float64, raised {self.first_error}"
        )

    def example(self) -> AttentionExample:
        """Returns an example with random query and memory; the padding of the memory is not 0."""
        generator = torch.Generator().manual_seed(0)
        mask = torch.arange(max(LENGTHS)) < torch.tensor(self.lengths).unsqueeze(1)  # [B, S]
        memory = torch.randn(
            *mask.shape, self.memory_size, generator=generator, dtype=torch.float64
        )
        query = torch.randn(len(mask), SIZE, generator=generator, dtype=torch.float64)  # [B, P]
        return AttentionExample(query, memory, mask)

    def __call__(self, example: AttentionExample) -> Answer:
        """Calls the tested code with an example, and returns its weights and context."""
        return self._called(example, self.layouts)

    def weights(self, example: AttentionExample) -> Tensor:
        """Returns the attention weights [B, S]. Raises SkippedLaw if the code returns none."""
        weights = self(example).weights
        if weights is None:
            raise SkippedLaw
        return weights

    def _called(self, example: AttentionExample, layouts: Mapping[str, str]) -> Answer:
        tensors = {"query": example.query, "memory": example.memory}
        arguments = {
            parameter: LAYOUTS[role][layouts[role]](tensors.get(role, example.mask))
            for parameter, role in self.roles.items()
        }
        # A copy, so that the state of earlier calls has no influence.
        function = copy.copy(self.function)
        # An attribute may hold the weights if the call returns only the context.
        return _answer(
            [function(**arguments), getattr(function, "attention_weights", None)], example
        )

    def _find_layouts(self) -> Mapping[str, str]:
        """Returns the first combination of argument layouts with which a call succeeds.

        If several mask layouts succeed, a layout with which padding has no influence is preferred.
        If several layouts of the other arguments succeed, by broadcasting, the first whose weights
        sum to 1 is preferred.
        """
        example = self.example()
        masks = LAYOUTS["mask"] if "mask" in self.roles.values() else [""]
        roles = sorted({*self.roles.values()} - {"mask"})
        first_layouts: Mapping[str, str] = {}
        for combination in itertools.product(*(LAYOUTS[role] for role in roles)):
            layouts = dict(zip(roles, combination, strict=True))
            on_padding = {}
            for mask in masks:
                try:
                    tried = {**layouts, "mask": mask}
                    on_padding[mask] = self._influence_of_padding(example, tried)
                except (Exception, SystemExit) as error:  # wrong layouts may raise any error
                    self.first_error = (
                        self.first_error or f"{type(error).__name__}: {first_line(error)}"
                    )
            if on_padding:
                first = next(iter(on_padding))
                best = min(on_padding, key=on_padding.__getitem__)
                layouts["mask"] = best if on_padding[best] < MASKED else first
                weights = self._called(example, layouts).weights
                if weights is None or torch.allclose(
                    weights.sum(1), weights.new_ones(()), atol=1e-4
                ):
                    return layouts
                first_layouts = first_layouts or layouts
        return first_layouts

    def _influence_of_padding(self, example: AttentionExample, layouts: Mapping[str, str]) -> float:
        """Returns the attention weight of all padding or, without attention weights, the change of
        the context if the padding changes."""
        answer = self._called(example, layouts)
        if answer.weights is not None:
            influence = answer.weights.masked_fill(example.mask, 0.0)  # [B, S]
        else:
            memory = example.memory.masked_fill(~example.mask.unsqueeze(2), 1.0)
            changed = self._called(replace(example, memory=memory), layouts)
            influence = changed.output - answer.output  # [B, M]
        return float(influence.abs().sum().nan_to_num(torch.inf))


def _answer(result: Any, example: AttentionExample) -> Answer:
    """Returns the weights and context of a result, identified by their shapes.

    Raises ValueError if the result has neither.
    """
    sentences, positions, features = example.memory.shape
    weights = []
    contexts = []
    weight_shape = [size for size in (sentences, positions) if size != 1]
    context_shape = [size for size in (sentences, features) if size != 1]
    for tensor in _tensors(result):
        if tensor.dim() == 3 and tensor.shape[::2] in (
            (sentences, positions),
            (sentences, features),
        ):
            if tensor.size(1) == sentences > 1:
                continue  # a wrong layout was broadcast to two batch dimensions
            tensor = tensor[:, 0]  # only the first decoder step is kept
        shape = [size for size in tensor.shape if size != 1]
        if shape == weight_shape:
            weights.append(tensor.reshape(sentences, positions))  # [B, S]
        elif shape == weight_shape[::-1]:
            weights.append(tensor.reshape(positions, sentences).transpose(0, 1))  # [B, S]
        elif shape == context_shape:
            contexts.append(tensor.reshape(sentences, features))  # [B, M]
    if not weights and not contexts:
        raise ValueError("the return value contains neither attention weights nor a context vector")
    # The result may contain scores besides the weights, which sum to 1.
    chosen = min(weights, key=lambda w: (w.detach().sum(1) - 1).abs().max(), default=None)
    return Answer(chosen, contexts[0] if contexts else None)


def _tensors(result: Any) -> list[Tensor]:
    """Returns all floating-point tensors of a nested result."""
    if isinstance(result, Tensor):
        return [result] if result.is_floating_point() else []
    if not isinstance(result, Mapping | tuple | list):
        return []
    values = result.values() if isinstance(result, Mapping) else result
    return [tensor for value in values for tensor in _tensors(value)]
