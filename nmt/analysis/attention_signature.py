"""Analysis of signatures of attention code: recognises the role of an argument by its name, and
chooses constructor arguments."""

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nmt.analysis.attention_probe import LENGTHS, SIZE, Probe
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Encoded
from nmt.foundation.plugins import raised_at
from nmt.model.attention import Score, check_score
from nmt.model.attention.layer import Attention

ROLES = {
    "lengths": r"len",
    "mask": r"mask|(?<!hs_)pad",
    "previous": r"weights|align|coverage|att\w*prev|prev\w*att",
    "memory": r"memor|^[kv]$|key|value|encoder|enc_|annotation|^hs$|source|src|context|matrix",
    "query": r"quer|^q$|hidden|state|decoder|dec_|rnn|vector|^output$|^[sh](_?t|_prev)?$",
    "tokens": r"input|token|^y|word|trg|tgt|target|^x$",
}
"""Maps each role of a parameter to a pattern of names; the first role that matches is used."""
MEMORY_SIZES = ((SIZE, SIZE), (SIZE, 2 * SIZE), (2 * SIZE, 2 * SIZE))
"""Pairs (encoder size, memory size M) to try; a bidirectional encoder doubles M."""
CONSTRUCTOR_VALUES = (
    (r"head", 2),
    (r"drop", 0.0),
    (r"vocab|out", 11),
    (r"max_?len", max(LENGTHS)),
    (r"size|dim|hid|feat|unit|emb|proj|filt|chan|^d|^n", SIZE),
)
"""Maps patterns of constructor parameter names to values for parameters without a default."""


def probe_of(target: Any, name: str) -> Probe:
    """Wraps attention code in a `Probe`, which calls the code with example tensors.

    target: function, module or module class
    name: name of the code, for messages

    Raises UserError if the code cannot be called.
    """
    problems = []
    for encoder_size, memory_size in MEMORY_SIZES:
        try:
            function = _function(target, encoder_size)
            return Probe(function, _roles(function), memory_size)
        except ValueError as error:
            problems.append(str(error))
        except Exception as error:  # the code may raise any exception
            problems.append(raised_at(error)[0])
    raise UserError(f"{name}: {problems[0]}")


def _function(target: Any, encoder_size: int) -> Callable[..., Any]:
    """Converts attention code to a function, or to a module in float64.

    target: function, module, module class, or `Attention` or `Score` of nmt
    encoder_size: size of the encoder's vectors, for constructors
    """
    # A copy, because the caller's module must keep its data type.
    function = (
        _constructed(target, encoder_size) if inspect.isclass(target) else copy.deepcopy(target)
    )
    if isinstance(function, Score):
        check_score(function, SIZE, encoder_size)
    if isinstance(function, Attention | Score):
        function = _OfThisPackage(function)
    return function.double().eval() if isinstance(function, nn.Module) else function


class _OfThisPackage(nn.Module):
    """Module that wraps an `Attention` or `Score` of nmt, so that it can be called like a plain
    function."""

    def __init__(self, attention: Attention | Score) -> None:
        super().__init__()
        self.attention = attention if isinstance(attention, Attention) else Attention(attention)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        prepared = self.attention.prepare(Encoded(memory, mask, final_state=memory[:, 0]))
        return self.attention.weights(self.attention.project(query.unsqueeze(1)), prepared)


def _constructed(cls: type, encoder_size: int) -> Any:
    """Returns an instance of a class, with small sizes for the required parameters."""
    arguments = {}
    for parameter in _required(cls, r"max_?len"):
        value = next((v for words, v in CONSTRUCTOR_VALUES if re.search(words, parameter)), None)
        if value is None:
            raise ValueError(
                f"no value is known for the constructor parameter {parameter}; give an instance "
                "instead of the class"
            )
        of_memory = value == SIZE and re.search(r"enc|memor|key|annot|matrix|eproj", parameter)
        arguments[parameter] = encoder_size if of_memory else value
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # a fixed seed gives the same verdict in every call
        try:
            return cls(**arguments)
        except Exception as error:
            raise ValueError(
                f"the constructor failed with the arguments {arguments}: {error}"
            ) from error


def _required(function: Callable[..., Any], pattern: str = "$^") -> list[str]:
    """Returns the names of those parameters of a function that have no default, or whose name
    matches `pattern`.

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
    # Of several optional masks, only the mask of the source positions is given.
    masks = [name for name, role in roles.items() if role == "mask" and name not in required]
    for name in sorted(masks, key=lambda name: "pad" not in name)[1:]:
        del roles[name]
    if "query" not in roles.values():
        # For example, the query may be encoder_hidden if another parameter is encoder_outputs, or
        # input if another parameter is source_hids.
        memories = [name for name, role in roles.items() if role == "memory"]
        hidden = [name for name in memories if "hidden" in name and len(memories) > 1]
        tokens = [name for name, role in roles.items() if role == "tokens"]
        roles |= dict.fromkeys([*hidden, *tokens, *memories][:1], "query")
    for needed in ("query", "memory"):
        if needed not in roles.values():
            raise ValueError(
                f"no parameter is recognised as the {needed} (recognised: {', '.join(roles)}); "
                f"rename the parameter that receives the {needed} to {needed}"
            )
    return roles
