"""Calls of attention code with any signature: functions, modules and decoders.

Parameters are recognised by their names. Layouts of the tensors are tried until a call returns
attention weights or a context. The sizes of all dimensions differ, so that a result is recognised
by its shape.

Dimensions: B sentences, S source positions, P features of the query, M features of the memory.
"""

import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Encoded
from nmt.model.attention import Attention, Score

LENGTHS = (6, 4, 1)
"""Source positions of the sentences of an example, padded to the longest."""
SIZE = 8
"""Features of the query."""
MEMORY_SIZES = ((SIZE, SIZE), (SIZE, 2 * SIZE), (2 * SIZE, 2 * SIZE))
"""Sizes that are tried: argument of a constructor, and M, which a bidirectional encoder doubles."""
VOCABULARY = 11
MASKED = 0.01
"""Largest weight of padding at which a layout of the mask counts as the right one."""
ROLES = {
    "lengths": r"len",
    "mask": r"mask|pad",
    "memory": r"memor|^[kv]$|key|value|encoder|enc_|annotation|^hs$|source|src|context",
    "query": r"quer|^q$|hidden|state|decoder|dec_|rnn|^[sh](_?t|_prev)?$",
    "tokens": r"input|token|^y|word|trg|tgt|target|^x$",
}
"""Patterns of parameter names by role; the first match decides."""
CONSTRUCTOR_VALUES = (
    (r"head", 2),
    (r"drop", 0.0),
    (r"vocab|out", VOCABULARY),
    (r"max_?len", max(LENGTHS)),
    (r"size|dim|hid|feat|unit|emb|^d|^n", SIZE),
)
"""Values of constructor parameters without a default, by patterns of their names."""


@dataclass(frozen=True)
class AttentionExample:
    """Arguments of one call.

    query: [B, P]
    memory: [B, S, M]
    mask: [B, S], true for a real position
    """

    query: Tensor
    memory: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Answer:
    """Result of one call.

    weights: [B, S] (None: not returned)
    context: [B, M] (None: not returned)
    """

    weights: Tensor | None
    context: Tensor | None


LAYOUTS: Mapping[str, Mapping[str, Callable[[Tensor], Tensor]]] = {
    "query": {
        "[B, P]": lambda query: query,
        "[B, 1, P]": lambda query: query.unsqueeze(1),
        "[1, B, P]": lambda query: query.unsqueeze(0),
    },
    "memory": {
        "[B, S, M]": lambda memory: memory,
        "[S, B, M]": lambda memory: memory.transpose(0, 1),
    },
    "mask": {
        "[B, S], true for words": lambda mask: mask,
        "[B, S], true for padding": lambda mask: ~mask,
        "[B, 1, S], true for words": lambda mask: mask.unsqueeze(1),
        "[B, 1, S], true for padding": lambda mask: ~mask.unsqueeze(1),
        "[S, B], true for words": lambda mask: mask.transpose(0, 1),
        "[S, B], true for padding": lambda mask: ~mask.transpose(0, 1),
        "[B, 1, 1, S], true for words": lambda mask: mask[:, None, None],
    },
    "lengths": {"[B]": lambda mask: mask.sum(1)},
    "tokens": {
        "[B]": lambda mask: torch.ones(len(mask), dtype=torch.long),
        "[B, 1]": lambda mask: torch.ones(len(mask), 1, dtype=torch.long),
        "[1, B]": lambda mask: torch.ones(1, len(mask), dtype=torch.long),
    },
}
"""Layouts of each role, in the order in which they are tried."""


class Probe:
    """Attention code, called in the layouts that it understands.

    function: function or module
    memory_size: M
    name: name for messages

    Raises UserError if no call returns weights or a context.
    """

    def __init__(self, function: Callable[..., Any], memory_size: int, name: str) -> None:
        self.function = function
        self.memory_size = memory_size
        self.roles = _roles(function, name)
        self.lengths: tuple[int, ...] = LENGTHS
        self.layouts = self._find_layouts()
        if not self.layouts:
            self.lengths = LENGTHS[:1]  # code for one sentence at a time
            self.layouts = self._find_layouts()
        if not self.layouts:
            raise UserError(
                f"{name}: no call returned weights of {len(LENGTHS)} sentences and "
                f"{max(LENGTHS)} source positions. Wrap "
                "it in a function of query [B, P], memory [B, S, M] and mask [B, S] that "
                "returns the weights [B, S]"
            )

    def example(self) -> AttentionExample:
        """Random query and memory; the padding of the memory is not 0."""
        generator = torch.Generator().manual_seed(0)
        mask = torch.arange(max(LENGTHS)) < torch.tensor(self.lengths).unsqueeze(1)  # [B, S]
        memory = torch.randn(
            *mask.shape, self.memory_size, generator=generator, dtype=torch.float64
        )
        query = torch.randn(len(mask), SIZE, generator=generator, dtype=torch.float64)
        return AttentionExample(query, memory, mask)

    def __call__(self, example: AttentionExample) -> Answer:
        """Weights and context of an example."""
        return self._called(example, self.layouts)

    @property
    def has_mask(self) -> bool:
        """Whether a parameter of the code marks the padding."""
        return bool({"mask", "lengths"} & set(self.roles.values()))

    def _called(self, example: AttentionExample, layouts: Mapping[str, str]) -> Answer:
        tensors = {"query": example.query, "memory": example.memory}
        arguments = {
            parameter: LAYOUTS[role][layouts[role]](tensors.get(role, example.mask))
            for parameter, role in self.roles.items()
        }
        return _answer(self.function(**arguments), example)

    def _find_layouts(self) -> Mapping[str, str]:
        """The first layouts with a result, and the mask that leaves padding no weight."""
        example = self.example()
        masks = LAYOUTS["mask"] if "mask" in self.roles.values() else [""]
        roles = sorted({*self.roles.values()} - {"mask"})
        for combination in itertools.product(*(LAYOUTS[role] for role in roles)):
            layouts = dict(zip(roles, combination, strict=True))
            on_padding = {}
            for mask in masks:
                # Wrong layouts raise errors of any type.
                with contextlib.suppress(Exception):
                    answer = self._called(example, {**layouts, "mask": mask})
                    on_padding[mask] = _weight_of_padding(answer, example)
            if on_padding:
                best = min(on_padding, key=lambda mask: on_padding[mask])
                is_understood = on_padding[best] < MASKED
                return {**layouts, "mask": best if is_understood else next(iter(on_padding))}
        return {}


class _OfThisPackage(nn.Module):
    """An attention or a score of nmt, called like a function."""

    def __init__(self, attention: Attention | Score) -> None:
        super().__init__()
        self.attention = attention if isinstance(attention, Attention) else Attention(attention)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        prepared = self.attention.prepare(Encoded(memory, mask, final_state=memory[:, 0]))
        return self.attention.weights(self.attention.project(query.unsqueeze(1)), prepared)


def probe_of(target: Any, name: str) -> Probe:
    """The probe of a function, a module or a class of modules.

    Raises UserError if it cannot be called.
    """
    problem: UserError | None = None
    for told_size, memory_size in MEMORY_SIZES:
        try:
            function = _constructed(target, told_size, name) if inspect.isclass(target) else target
            if isinstance(function, Attention | Score):
                function = _OfThisPackage(function)
            if isinstance(function, nn.Module):
                function = function.double().eval()
            return Probe(function, memory_size, name)
        except UserError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _constructed(cls: type, memory_size: int, name: str) -> Any:
    """An instance of a class, with small sizes for the parameters that need a value."""
    arguments = {}
    for parameter in _required(cls):
        value = next((v for words, v in CONSTRUCTOR_VALUES if re.search(words, parameter)), None)
        if value is None:
            raise UserError(
                f"{name}: no value known for {parameter}= of the constructor; give an instance "
                "instead of the class"
            )
        of_memory = value == SIZE and re.search(r"enc|memor|key|annot", parameter)
        arguments[parameter] = memory_size if of_memory else value
    torch.manual_seed(0)  # the same verdict in every call
    try:
        return cls(**arguments)
    except Exception as error:
        raise UserError(f"{name}: cannot be made with {arguments}: {error}") from error


def _required(function: Callable[..., Any]) -> list[str]:
    """Parameters without a default."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in variadic
    ]


def _roles(function: Callable[..., Any], name: str) -> Mapping[str, str]:
    """Roles of parameters of a function or of `forward`. Raises UserError for an unknown one."""
    called = function.forward if isinstance(function, nn.Module) else function
    required = _required(called)
    roles: dict[str, str] = {}
    for parameter in inspect.signature(called).parameters:
        role = next((r for r, words in ROLES.items() if re.search(words, parameter)), None)
        if role is None and parameter in required:
            raise UserError(
                f"{name}: the meaning of the parameter {parameter} is unknown; rename it to query, "
                "memory, keys, values, mask, lengths or tokens"
            )
        # Without its optional tokens, a decoder continues its own output.
        if role is not None and (role != "tokens" or parameter in required):
            roles[parameter] = role
    if "query" not in roles.values():
        roles |= dict.fromkeys(_likely_queries(roles)[:1], "query")
    for needed in ("query", "memory"):
        if needed not in roles.values():
            raise UserError(f"{name}: no parameter for the {needed} (found: {', '.join(roles)})")
    return roles


def _likely_queries(roles: Mapping[str, str]) -> list[str]:
    """Parameters that may be the query if none is called so, the most likely first.

    encoder_hidden beside encoder_outputs, input beside source_hids, source beside memory_bank
    """
    memories = [parameter for parameter, role in roles.items() if role == "memory"]
    hidden = [parameter for parameter in memories if "hidden" in parameter and len(memories) > 1]
    tokens = [parameter for parameter, role in roles.items() if role == "tokens"]
    return [*hidden, *tokens, *memories]


def _weight_of_padding(answer: Answer, example: AttentionExample) -> float:
    if answer.weights is None:
        return 0.0
    weights = answer.weights.detach()
    return float(weights.masked_fill(example.mask, 0.0).abs().sum().nan_to_num(torch.inf))


def _answer(result: Any, example: AttentionExample) -> Answer:
    """Weights and context of a result, by their shapes. Raises ValueError if it has neither."""
    sentences, positions, features = example.memory.shape
    weights = []
    contexts = []
    weight_shape = [size for size in (sentences, positions) if size != 1]
    context_shape = [size for size in (sentences, features) if size != 1]
    last_sizes = (positions, features)
    for tensor in _tensors(result):
        if tensor.dim() == 3 and tensor.size(0) == sentences and tensor.size(2) in last_sizes:
            if tensor.size(1) == sentences > 1:
                continue  # two batch dimensions, by broadcasting of a wrong layout
            tensor = tensor[:, 0]  # the first step of a decoder
        shape = [size for size in tensor.shape if size != 1]
        if shape == weight_shape:
            weights.append(tensor.reshape(sentences, positions))
        elif shape == weight_shape[::-1]:
            weights.append(tensor.reshape(positions, sentences).transpose(0, 1))
        elif shape == context_shape:
            contexts.append(tensor.reshape(sentences, features))
    if not weights and not contexts:
        raise ValueError("neither weights nor a context")
    sums = [float((tensor.detach().sum(1) - 1).abs().max()) for tensor in weights]
    chosen = weights[sums.index(min(sums))] if weights else None  # scores may stand beside weights
    return Answer(chosen, contexts[0] if contexts else None)


def _tensors(result: Any) -> Iterator[Tensor]:
    """All floating-point tensors of a result."""
    if isinstance(result, Tensor):
        if result.is_floating_point():
            yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _tensors(value)
    elif isinstance(result, tuple | list):
        for value in result:
            yield from _tensors(value)
