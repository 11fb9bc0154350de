"""Calls attention code, such as functions, modules and decoders, whatever its signature.

Arguments are recognised by their names. Tensor layouts are tried until a call returns attention
weights or a context. All dimensions of the example have different sizes, so that a result is
recognised by its shape.

In shapes, B is the number of sentences, S of source positions, P the size of the query and M the
size of the memory.
"""

import contextlib
import copy
import inspect
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Encoded
from nmt.model.attention import Attention, Score, check_score

LENGTHS = (6, 4, 1)
"""Lengths of the example's source sentences, in positions; shorter sentences are padded."""
SIZE = 8
"""Size P of the query vectors in the example."""
MEMORY_SIZES = ((SIZE, SIZE), (SIZE, 2 * SIZE), (2 * SIZE, 2 * SIZE))
"""Pairs (encoder size, memory size M) to try; a bidirectional encoder doubles M."""
MASKED = 0.01
"""Maximum attention weight of padding with the correct mask layout."""
ROLES = {
    "lengths": r"len",
    "mask": r"mask|(?<!hs_)pad",
    "previous": r"weights|align|coverage|att\w*prev|prev\w*att",
    "memory": r"memor|^[kv]$|key|value|encoder|enc_|annotation|^hs$|source|src|context|matrix",
    "query": r"quer|^q$|hidden|state|decoder|dec_|rnn|vector|^output$|^[sh](_?t|_prev)?$",
    "tokens": r"input|token|^y|word|trg|tgt|target|^x$",
}
"""Maps each role of a parameter to a pattern of names; the first role that matches is used."""
CONSTRUCTOR_VALUES = (
    (r"head", 2),
    (r"drop", 0.0),
    (r"vocab|out", 11),
    (r"max_?len", max(LENGTHS)),
    (r"size|dim|hid|feat|unit|emb|proj|filt|chan|^d|^n", SIZE),
)
"""Maps patterns of constructor parameter names to values for parameters without a default."""


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
    memory_size: size M of the memory vectors

    Raises ValueError if no layout returns weights or a context.
    """

    def __init__(self, function: Callable[..., Any], memory_size: int) -> None:
        self.function = function
        self.memory_size = memory_size
        self.roles = _roles(function)
        # The tested code may support only one sentence at a time.
        for lengths in (LENGTHS, LENGTHS[:1]):
            self.lengths = lengths
            self.layouts = self._find_layouts()
            if self.layouts:
                return
        raise ValueError(
            f"no call of the code returned attention weights for {len(LENGTHS)} sentences and "
            f"{max(LENGTHS)} source positions. Wrap the code in a function of query [B, P], memory "
            "[B, S, M] and mask [B, S] that returns the attention weights [B, S]"
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

        If several mask layouts succeed, the layout that gives padding no weight is preferred.
        """
        example = self.example()
        masks = LAYOUTS["mask"] if "mask" in self.roles.values() else [""]
        roles = sorted({*self.roles.values()} - {"mask"})
        for combination in itertools.product(*(LAYOUTS[role] for role in roles)):
            layouts = dict(zip(roles, combination, strict=True))
            on_padding = {}
            for mask in masks:
                # Wrong layouts may raise any error.
                with contextlib.suppress(Exception):
                    answer = self._called(example, {**layouts, "mask": mask})
                    on_padding[mask] = _weight_of_padding(answer, example)
            if on_padding:
                first = next(iter(on_padding))
                best = min(on_padding, key=on_padding.__getitem__)
                return {**layouts, "mask": best if on_padding[best] < MASKED else first}
        return {}


class _OfThisPackage(nn.Module):
    """Module with which an `Attention` or `Score` of nmt is called like a plain function."""

    def __init__(self, attention: Attention | Score) -> None:
        super().__init__()
        self.attention = attention if isinstance(attention, Attention) else Attention(attention)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        prepared = self.attention.prepare(Encoded(memory, mask, final_state=memory[:, 0]))
        return self.attention.weights(self.attention.project(query.unsqueeze(1)), prepared)


def probe_of(target: Any, name: str) -> Probe:
    """Wraps attention code in a `Probe`, which calls the code with example tensors.

    target: function, module or module class
    name: name of the code, for messages

    Raises UserError if the code cannot be called.
    """
    problems = []
    for encoder_size, memory_size in MEMORY_SIZES:
        try:
            return Probe(_function(target, encoder_size), memory_size)
        except ValueError as error:
            problems.append(error)
    raise UserError(f"{name}: {problems[0]}") from problems[0]


def _function(target: Any, encoder_size: int) -> Callable[..., Any]:
    """Converts attention code to a function, or to a module in float64.

    target: function, module, module class, or `Attention` or `Score` of nmt
    encoder_size: size of the encoder's vectors, for constructors
    """
    function = _constructed(target, encoder_size) if inspect.isclass(target) else target
    if isinstance(function, Score):
        check_score(function, SIZE, encoder_size)
    if isinstance(function, Attention | Score):
        function = _OfThisPackage(function)
    return function.double().eval() if isinstance(function, nn.Module) else function


def _constructed(cls: type, encoder_size: int) -> Any:
    """Returns an instance of a class, with small sizes for the required parameters."""
    arguments = {}
    for parameter in _required(cls, r"max_?len"):
        value = next((v for words, v in CONSTRUCTOR_VALUES if re.search(words, parameter)), None)
        if value is None:
            raise ValueError(
                f"the constructor parameter {parameter} is unknown; give an instance instead of "
                "the class"
            )
        of_memory = value == SIZE and re.search(r"enc|memor|key|annot|matrix|eproj", parameter)
        arguments[parameter] = encoder_size if of_memory else value
    torch.manual_seed(0)  # a fixed seed gives the same verdict in every call
    try:
        return cls(**arguments)
    except Exception as error:
        raise ValueError(
            f"the constructor failed with the arguments {arguments}: {error}"
        ) from error


def _required(function: Callable[..., Any], pattern: str = "$^") -> list[str]:
    """Returns the names of a function's parameters that have no default or match a pattern.

    pattern: regular expression; the default matches no name
    """
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if (parameter.default is parameter.empty and parameter.kind not in variadic)
        or re.search(pattern, parameter.name)
    ]


def _roles(function: Callable[..., Any]) -> Mapping[str, str]:
    """Returns the role of each parameter in the signature of a function or `forward` method.

    Raises ValueError for an unknown parameter or a missing role.
    """
    called = function.forward if isinstance(function, nn.Module) else function
    required = _required(called)
    roles: dict[str, str] = {}
    for parameter in inspect.signature(called).parameters:
        role = next((r for r, words in ROLES.items() if re.search(words, parameter)), None)
        if role is None and parameter in required:
            raise ValueError(
                f"the meaning of the parameter {parameter} is unknown; rename it to query, "
                "memory, keys, values, mask, lengths or tokens"
            )
        # Optional tokens are omitted: the decoder then continues its own output.
        if role is not None and (role not in ("tokens", "previous") or parameter in required):
            roles[parameter] = role
    if "query" not in roles.values():
        roles |= dict.fromkeys(_likely_queries(roles)[:1], "query")
    for needed in ("query", "memory"):
        if needed not in roles.values():
            raise ValueError(
                f"no parameter for the {needed} (recognised: {', '.join(roles)}); rename the "
                f"parameter to {needed}"
            )
    return roles


def _likely_queries(roles: Mapping[str, str]) -> list[str]:
    """Returns parameters that may be the query if no name matches, the most likely first.

    For example, the query may be encoder_hidden if another parameter is encoder_outputs, or input
    if another parameter is source_hids.
    """
    memories = [parameter for parameter, role in roles.items() if role == "memory"]
    hidden = [parameter for parameter in memories if "hidden" in parameter and len(memories) > 1]
    tokens = [parameter for parameter, role in roles.items() if role == "tokens"]
    return [*hidden, *tokens, *memories]


def _weight_of_padding(answer: Answer, example: AttentionExample) -> float:
    if answer.weights is None:
        return 0.0
    on_padding = answer.weights.masked_fill(example.mask, 0.0)  # [B, S]
    return float(on_padding.abs().sum().nan_to_num(torch.inf))


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
