"""Checks whether attention code has the properties of correct attention, called laws.

    import nmt.analysis.attention_laws as laws
    print(laws.check_attention(my_attention).text)

Each law is a function that calls the code on tiny examples. If the code does not have the property,
the function raises BrokenLaw. The message contains the wrong weights or differences.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from nmt.analysis import decoder_laws
from nmt.analysis.attention_probe import LENGTHS, Answer, AttentionExample, Probe, probe_of
from nmt.analysis.laws import (
    TOLERANCE,
    BrokenLaw,
    SkippedLaw,
    broken_laws,
    difference,
    require,
    require_equal,
)
from nmt.foundation.errors import UserError
from nmt.model.decoder import Decoder

log = logging.getLogger(__name__)
SCALE = 1024.0
"""Factor by which a test multiplies the query and the learned parameters of a score function.

Unless the scores are bounded, the attention weights then become one-hot. The factor is a power of
2, so that dividing the parameters by the factor restores them exactly.
"""


@dataclass(frozen=True)
class Verdict:
    """Result of testing attention code, as returned by `check_attention`.

    name: name of the tested code
    called: sentence that names the arguments of the tested code and their tensor layouts
    broken: for each broken law by name, the observed weights or contexts and the probable cause
    tried: number of laws against which the code was tested
    """

    name: str
    called: str
    broken: Mapping[str, str]
    tried: int

    @property
    def text(self) -> str:
        """Result as text, with a summary and one paragraph for each broken law."""
        if not self.broken:
            return f"{self.name}: keeps all {self.tried} laws. {self.called}"
        count = f"breaks {len(self.broken)} of {self.tried} laws"
        paragraphs = [f"{law}: {text}" for law, text in self.broken.items()]
        return "\n\n".join([f"{self.name}: {count}. {self.called}", *paragraphs])


@torch.no_grad()
def check_attention(target: Any, name: str | None = None) -> Verdict:
    """Tests attention code against laws, which are properties of correct attention.

    The arguments of a function or of `forward` are recognised by common names: query [B, P], memory
    [B, S, M], mask [B, S] or lengths [B], and tokens of a decoder. The code must return the weights
    [B, S], the context [B, M], or both. B is the number of sentences, and S the number of source
    positions. P and M are the sizes of query and memory.

    target: function, module, module class, or `Score` or `Attention` of nmt; a subclass of
        `Decoder` is tested against the laws of decoders instead
    name: name of the code in messages; None for its Python name

    Raises UserError if the code cannot be called.
    """
    if name is None:
        name = str(getattr(target, "__name__", type(target).__name__))
    if isinstance(target, type) and issubclass(target, Decoder):
        score = " and attention=general" if target.attends else ""
        called = f"The code was built with small sizes{score}."
        broken = decoder_laws.check_decoder(target)
        return Verdict(name, called, broken, len(decoder_laws.LAWS))
    probe = probe_of(target, name)
    layouts = [f"{parameter} {probe.layouts[role]}" for parameter, role in probe.roles.items()]
    called = f"The code was called with {', '.join(layouts)}."
    if probe.layouts.get("mask", "").endswith("true for padding"):
        called += " Its mask must be true for padding; the masks of nmt are true for words."
    return Verdict(name, called, broken_laws(LAWS, probe), len(LAWS))


def print_verdicts(*, functions: list[str]) -> None:
    """Tests each FILE.py:NAME and prints the results.

    Raises SystemExit(1) if a law is broken or code cannot be called.
    """
    is_correct = True
    for function in functions:
        try:
            verdict = check_file(function)
            print(verdict.text, end="\n\n")
            is_correct &= not verdict.broken
        except UserError as error:
            log.error("%s", error)
            is_correct = False
    if not is_correct:
        raise SystemExit(1)


def check_file(target: str) -> Verdict:
    """Tests the code FILE.py:NAME. Raises UserError if the code is not found or cannot be run."""
    path, name = target.partition(":")[::2]
    if not Path(path).is_file():
        raise UserError(
            f"functions={target}: file not found: {path or target}; expected FILE.py:NAME"
        )
    module = ModuleType("checked_attention")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses need their module in sys.modules
    try:
        SourceFileLoader(module.__name__, path).exec_module(module)
    except Exception as error:
        raise UserError(f"functions={target}: {path} cannot be run: {error}") from error
    if not callable(getattr(module, name, None)):
        defined = sorted(
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        )
        raise UserError(
            f"functions={target}: {name or 'NAME'} not found in {path}; the file "
            f"defines {', '.join(defined)}"
        )
    return check_attention(getattr(module, name), f"{path}:{name}")


def _weights(probe: Probe, example: AttentionExample) -> Tensor:
    """Returns the attention weights [B, S]. Raises SkippedLaw if the code does not return them."""
    weights = probe(example).weights
    if weights is None:
        raise SkippedLaw
    return weights


def _output(answer: Answer) -> Tensor:
    """Returns the attention weights that the tested code returned, or the context if there are no
    weights.
    """
    output = answer.context if answer.weights is None else answer.weights
    assert output is not None
    return output


def _row(weights: Tensor) -> str:
    return "(" + ", ".join(f"{weight:.3f}" for weight in weights.tolist()) + ")"


def _first_cause(*causes: tuple[bool | Tensor, str]) -> str:
    """Returns the probable cause of a broken law: the first text whose condition is true.

    causes: pairs (condition, text)
    """
    return next(text for is_cause, text in causes if is_cause)


def sums_to_one(probe: Probe) -> None:
    """Requires that the weights of each query are ≥ 0 and sum to 1."""
    example = probe.example()
    weights = _weights(probe, example)  # [B, S]
    sums = weights.sum(1)  # [B]
    errors = (sums - 1).abs()  # [B]
    is_distribution = (weights >= 0).all() and errors.max() <= TOLERANCE
    if not is_distribution:  # also for NaN
        worst = int(errors.argmax())
        cause = _first_cause(
            (
                (weights.sum(0) - 1).abs().max() <= TOLERANCE,
                "The weights sum to 1 over the sentences of the batch: the softmax has the wrong "
                "dimension.",
            ),
            (
                (weights < 0).any() or weights.max() > 1 + TOLERANCE,
                "The code returns scores: add a softmax over the source positions.",
            ),
            (
                errors[0] <= TOLERANCE,
                "Only sentences with padding are wrong: mask the scores before the softmax "
                "instead of the weights after it.",
            ),
            (
                True,
                "The weights change after the softmax, for example by an epsilon in the "
                "denominator.",
            ),
        )
        raise BrokenLaw(
            f"the attention weights of the source sentence of length {LENGTHS[worst]}, "
            f"{_row(weights[worst])}, sum to {sums[worst]:.6g} instead of 1. {cause}"
        )
    for sign in (1, -1):
        scaled = _weights_of_scaled(probe, replace(example, query=sign * example.query))
        require(
            # NaN is reported by the law of can_choose_one_word.
            (scaled.sum(1) - 1).nan_to_num(0.0).abs().max() <= TOLERANCE,
            f"with parameters {SCALE:g} times as large, the attention weights of a sentence do not "
            "sum to 1. A masked score of 0 has this effect if all other scores are large and "
            "negative: use -inf.",
        )


def ignores_padding(probe: Probe) -> None:
    """Requires that the tested code gives padding a weight of exactly 0."""
    example = probe.example()
    weights = _weights(probe, example)  # [B, S]
    on_padding = weights.masked_fill(example.mask, 0.0).sum(1)  # [B]
    worst = int(on_padding.argmax())
    if on_padding[worst] == 0:
        return
    real = weights[worst].masked_select(example.mask[worst])
    cause = _first_cause(
        (
            not {"mask", "lengths"} & {*probe.roles.values()},
            "The code has no mask: add a parameter mask, and set the scores of padding to -inf.",
        ),
        (
            on_padding[worst] < 1e-3,
            "The masked scores of padding are not small enough: use -inf.",
        ),
        (
            (real == 0).any(),
            "Words have the weight 0: the mask is inverted, or marks other positions.",
        ),
        (
            weights[worst, LENGTHS[worst]] == on_padding[worst],
            "Only the first padding has a weight: the mask is one position too long.",
        ),
        (
            True,
            "The mask has no effect on the softmax: set the scores of padding to -inf before the "
            "softmax.",
        ),
    )
    raise BrokenLaw(
        f"in a batch with longer sentences, the sentence of length {LENGTHS[worst]} has "
        f"{on_padding[worst]:.3g} of its attention weight on padding. Its weights are "
        f"{_row(weights[worst])}. {cause}"
    )


def content_of_padding(probe: Probe) -> None:
    """Requires that the content of padding does not affect the result."""
    example = probe.example()
    # Large values in the padding reveal incomplete masking.
    memory = example.memory.masked_fill(~example.mask.unsqueeze(2), 1e3)
    changed = _output(probe(replace(example, memory=memory)))
    require(
        changed.isfinite().all(),
        "large values in the padding cause NaN: exp of a score of padding overflows before the "
        "mask is applied.",
    )
    require_equal(
        changed,
        _output(probe(example)),
        "other values in the padding change the result by up to {}: the padding is not masked "
        "completely.",
    )


def depends_on_query(probe: Probe) -> None:
    """Requires that the attention weights depend on the query."""
    example = probe.example()
    changed = replace(example, query=example.query.flip(1) + 1)
    require(
        difference(_output(probe(changed)), _output(probe(example))) > TOLERANCE,
        "two different queries give the same weights. In a linear score of [query; key], the "
        "query term is equal at all positions and cancels in the softmax: add a nonlinearity such "
        "as tanh before the last layer.",
    )


def depends_on_memory(probe: Probe) -> None:
    """Requires that permuting the source words permutes the weights."""
    example = probe.example()
    if _size_problem(probe) is None:
        example = _alone(example)  # the code may mix the sentences of a batch
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    moved = example.memory.clone()
    moved[0] = moved[0, order]  # the first sentence has no padding
    before = _weights(probe, example)
    after = _weights(probe, replace(example, memory=moved))
    cause = _first_cause(
        (
            torch.allclose(after, before),
            "The weights depend only on positions, not on the words.",
        ),
        (
            True,
            "The score depends on positions, for example by a layer with one output per position, "
            "or a convolution over the weights of the previous step.",
        ),
    )
    require_equal(
        after[0],
        before[0, order],
        "if the order of the words changes, the weight of a word should stay the same, but it "
        f"changes by up to {{}}. {cause}",
    )


def all_sizes_work(probe: Probe) -> None:
    """Requires that the code accepts several sentences, a single sentence and one-word
    sentences.
    """
    problem = _size_problem(probe)
    require(problem is None, str(problem))


def _size_problem(probe: Probe) -> str | None:
    """Returns a batch size or sentence length that the code rejects, with the probable cause.

    Returns None if the code accepts all sizes.
    """
    if len(probe.lengths) == 1:
        return "the code works only for a batch of one sentence."
    example = probe.example()
    parts = {
        "a batch of one sentence": _alone(example),
        "a batch of sentences of one word": replace(
            example, memory=example.memory[:, :1], mask=example.mask[:, :1]
        ),
    }
    for description, part in parts.items():
        try:
            probe(part)
        except Exception as error:  # the tested code may raise any error
            return (
                f"{description} fails ({str(error).splitlines()[0]}), probably because of "
                "squeeze() without a dimension or view() with a fixed size."
            )
    return None


def _alone(example: AttentionExample) -> AttentionExample:
    """Returns an example with only the first sentence."""
    return AttentionExample(example.query[:1], example.memory[:1], example.mask[:1])


def sentences_are_independent(probe: Probe) -> None:
    """Requires that a sentence has equal weights alone and in a batch."""
    if _size_problem(probe):
        return
    example = probe.example()
    require_equal(
        _output(probe(_alone(example))),
        _output(probe(example))[:1],
        "the first sentence alone gets attention weights that differ by up to {} from its weights "
        "in a batch: the code mixes sentences, for example by view() instead of transpose().",
    )


def can_choose_one_word(probe: Probe) -> None:
    """Requires that large queries, memories or learned parameters make the attention weights nearly
    one-hot."""
    example = probe.example()
    largest = 0.0
    # A large query alone saturates the tanh of an additive score at all positions, and so do
    # large parameters if the memory is projected outside the code.
    for query_factor, memory_factor in ((1.0, 1.0), (SCALE, 1.0), (1.0, SCALE**2)):
        query = query_factor * example.query
        memory = memory_factor * example.memory
        weights = _weights_of_scaled(probe, AttentionExample(query, memory, example.mask))
        require(
            weights.isfinite().all(),
            "large scores cause NaN: subtract the largest score before exp, as torch.softmax does.",
        )
        largest = max(largest, float(weights[0].max()))
        # The mean of up to four sharp heads has no weights between 0 and 1/4.
        blurred = (weights[0] > 0.01) & (weights[0] < 0.24)  # [S]
        if not blurred.any():
            return
    raise BrokenLaw(
        f"even if query, memory or parameters are multiplied by {SCALE:g} or more, the largest "
        f"of the {LENGTHS[0]} attention weights is only {largest:.3f}. The scores are bounded, for "
        "example by tanh or a sigmoid after the last layer, so training cannot make the weights "
        "sharp."
    )


def _weights_of_scaled(probe: Probe, example: AttentionExample) -> Tensor:
    """Returns the attention weights of the tested code while its learned parameters are multiplied
    by a large factor (SCALE)."""
    module = probe.function
    parameters = list(module.parameters()) if isinstance(module, nn.Module) else []
    for parameter in parameters:
        parameter.mul_(SCALE)
    try:
        return _weights(probe, example)
    finally:
        for parameter in parameters:
            parameter.div_(SCALE)


@torch.enable_grad()
def gradients_arrive(probe: Probe) -> None:
    """Requires that gradients reach the query and the memory."""
    example = probe.example()
    query = example.query.clone().requires_grad_()
    memory = example.memory.clone().requires_grad_()
    output = _output(probe(replace(example, query=query, memory=memory)))
    require(
        output.requires_grad,
        "no gradient reaches the query and the memory: remove detach(), .data or no_grad().",
    )
    # Different coefficients, because the gradient of the sum of the weights is 0.
    coefficients = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    gradients = torch.autograd.grad(
        (coefficients * output).sum(), [query, memory], allow_unused=True
    )
    for gradient, name in zip(gradients, ("query", "memory"), strict=True):
        if gradient is None or not gradient.any():
            raise BrokenLaw(
                f"no gradient of the attention weights reaches the {name}: either the weights do "
                f"not depend on the {name}, or detach(), .data or argmax cut the gradient."
            )
        require(
            gradient.isfinite().all(),
            f"the gradient of the {name} is NaN or inf, probably because of 0 · inf at a masked "
            "position.",
        )


def context_is_weighted_sum(probe: Probe) -> None:
    """Requires that the context is the sum of the memory vectors, weighted by attention.

    The test applies to functions only, because a module may project the memory.
    """
    example = probe.example()
    answer = probe(example)
    if isinstance(probe.function, nn.Module) or answer.weights is None or answer.context is None:
        return
    require_equal(
        answer.context,
        (answer.weights.unsqueeze(2) * example.memory).sum(1),  # [B, M]
        "the context differs by up to {} from the weighted sum of the memory.",
    )


LAWS: dict[str, Callable[[Probe], None]] = {
    "weights are a distribution": sums_to_one,
    "padding gets no weight": ignores_padding,
    "the content of padding has no influence": content_of_padding,
    "the query has an influence": depends_on_query,
    "weights move with the words": depends_on_memory,
    "all sizes can be computed": all_sizes_work,
    "sentences do not influence each other": sentences_are_independent,
    "one word can get all weight": can_choose_one_word,
    "gradients reach query and memory": gradients_arrive,
    "the context is the weighted sum": context_is_weighted_sum,
}
"""Maps the name of each law to its test function, which raises BrokenLaw if the law is broken."""
