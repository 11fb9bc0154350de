"""Tests of attention code for properties of correct attention, called laws.

    import nmt.analysis.attention_laws as laws
    print(laws.check_attention(my_attention).text)

Each law is a function that calls the code on tiny examples. The function returns an explanation
with numbers if the law is broken, otherwise None.
"""

import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.analysis import decoder_laws
from nmt.analysis.attention_probe import LENGTHS, Answer, AttentionExample, Probe, probe_of
from nmt.analysis.decoder_laws import check_decoder
from nmt.foundation.errors import UserError
from nmt.model.decoder import Decoder

log = logging.getLogger(__name__)
TOLERANCE = 1e-9
"""Maximum absolute difference between float64 values that count as equal."""
SCALE = 1e3
"""Factor for queries and parameters that makes the weights of an unbounded score one-hot."""


@dataclass(frozen=True)
class Verdict:
    """Result of testing attention code, as returned by `check_attention`.

    name: name of the tested code
    called: sentence that names the parameters of the checked code and their tensor layouts
    broken: for each broken law by name, the observed weights or contexts and the probable cause
    tried: number of laws that the code was tested for
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


def check_attention(target: Any, name: str | None = None) -> Verdict:
    """Tests attention code for the properties of correct attention (laws).

    The parameters of a function or of `forward` are recognised by common names: query [B, P],
    memory [B, S, M], mask [B, S] or lengths [B], and tokens of a decoder. The code returns the
    weights [B, S], the context [B, M], or both. B is the number of sentences, S of source
    positions, P and M are the sizes of query and memory.

    target: function, module, module class, attention score, attention, or a subclass of `Decoder`,
        which is tested for the laws of decoders
    name: name of the code in messages; None for its Python name

    Raises UserError if the code cannot be called.
    """
    if name is None:
        name = str(getattr(target, "__name__", type(target).__name__))
    if isinstance(target, type) and issubclass(target, Decoder):
        score = " and attention=general" if target.attends else ""
        called = f"The code was built with small sizes{score}."
        return Verdict(name, called, check_decoder(target), len(decoder_laws.LAWS))
    probe = probe_of(target, name)
    problems = {law: check(probe) for law, check in LAWS.items()}
    broken = {law: problem for law, problem in problems.items() if problem is not None}
    layouts = [f"{parameter} {probe.layouts[role]}" for parameter, role in probe.roles.items()]
    called = f"The code was called with {', '.join(layouts)}."
    if probe.layouts.get("mask", "").endswith("true for padding"):
        called += " Its mask must be true for padding; the masks of nmt are true for words."
    return Verdict(name, called, broken, len(LAWS))


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
    path, name = target.partition(".py:")[::2]
    path = path.removesuffix(".py") + ".py"
    if not Path(path).is_file():
        raise UserError(
            f"functions={target}: file not found: {path or target}; expected FILE.py:NAME"
        )
    spec = importlib.util.spec_from_file_location("checked_attention", path)
    if spec is None or spec.loader is None:
        raise UserError(f"functions={target}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses need their module in sys.modules
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"functions={target}: {path} cannot be run: {error}") from error
    if not callable(getattr(module, name, None)):
        functions = {key: value for key, value in vars(module).items() if callable(value)}
        defined = sorted(
            key for key, f in functions.items() if getattr(f, "__module__", None) == spec.name
        )
        raise UserError(
            f"functions={target}: {name or 'NAME'} not found in {path}; the file "
            f"defines {', '.join(defined)}"
        )
    return check_attention(getattr(module, name), f"{path}:{name}")


def _weights(probe: Probe, example: AttentionExample) -> Tensor | None:
    with torch.no_grad():
        return probe(example).weights


def _output(answer: Answer) -> Tensor:
    """Returns the attention weights that the checked code returned, or the context if there are no
    weights.
    """
    output = answer.context if answer.weights is None else answer.weights
    assert output is not None
    return output


def _outputs(probe: Probe, *examples: AttentionExample) -> list[Tensor]:
    with torch.no_grad():
        return [_output(probe(example)) for example in examples]


def _row(weights: Tensor) -> str:
    return "(" + ", ".join(f"{weight:.3f}" for weight in weights.tolist()) + ")"


def sums_to_one(probe: Probe) -> str | None:
    """Returns None if the weights of each query are ≥ 0 and sum to 1, otherwise an explanation."""
    example = probe.example()
    weights = _weights(probe, example)  # [B, S]
    if weights is None:
        return None
    sums = weights.sum(1)  # [B]
    if (weights >= 0).all() and (sums - 1).abs().max() <= TOLERANCE:
        large = [
            _weights_of_scaled(probe, replace(example, query=sign * example.query))
            for sign in (1, -1)
        ]
        errors = torch.cat([scaled.sum(1) - 1 for scaled in large if scaled is not None])  # [2 B]
        # NaN is reported by the test can_choose_one_word.
        vanishing = (
            f"with parameters {SCALE:g} times as large, the weights of a sentence do not sum to 1. "
            "A masked score of 0 has this effect if all other scores are large and negative: "
            "use -inf."
        )
        return vanishing if errors.nan_to_num(0.0).abs().max() > TOLERANCE else None
    worst = int((sums - 1).abs().argmax())
    text = (
        f"the weights of the sentence of length {LENGTHS[worst]}, {_row(weights[worst])}, sum to "
        f"{sums[worst]:.6g} instead of 1. "
    )
    if (weights.sum(0) - 1).abs().max() <= TOLERANCE:
        return (
            text
            + "The weights sum to 1 over the sentences of the batch: the softmax has the wrong "
            "dimension."
        )
    if (weights < 0).any() or weights.max() > 1 + TOLERANCE:
        return text + "The code returns scores: add a softmax over the source positions."
    if abs(float(sums[0]) - 1) <= TOLERANCE:
        return (
            text + "Only sentences with padding are wrong: mask the scores before the softmax "
            "instead of the weights after it."
        )
    return (
        text + "The weights change after the softmax, for example by an epsilon in the denominator."
    )


def ignores_padding(probe: Probe) -> str | None:
    """Returns None if the checked code gives padding a weight of exactly 0, otherwise an
    explanation.
    """
    example = probe.example()
    weights = _weights(probe, example)
    if weights is None or len(example.mask) == 1:
        return None
    on_padding = weights.masked_fill(example.mask, 0.0).sum(1)  # [B]
    worst = int(on_padding.argmax())
    if on_padding[worst] == 0:
        return None
    text = (
        f"in a batch with longer sentences, the sentence of length {LENGTHS[worst]} leaves "
        f"{on_padding[worst]:.3g} of its "
        f"weight, {_row(weights[worst])}, to padding. "
    )
    if not probe.has_mask:
        return (
            text + "The code has no mask: add a parameter mask, and set the scores of padding to "
            "-inf."
        )
    if on_padding[worst] < 1e-3:
        return text + "The masked scores of padding are not small enough: use -inf."
    real = weights[worst].masked_select(example.mask[worst])
    first_padding = weights[worst, LENGTHS[worst]]
    if (real == 0).any():
        return text + "Words have the weight 0: the mask is inverted, or marks other positions."
    if first_padding == on_padding[worst]:
        return text + "Only the first padding has a weight: the mask is one position too long."
    return (
        text + "The mask has no effect on the softmax: set the scores of padding to -inf before "
        "the softmax."
    )


def content_of_padding(probe: Probe) -> str | None:
    """Returns None if the content of padding does not affect the result, otherwise an
    explanation.
    """
    example = probe.example()
    # Large values in the padding reveal incomplete masking.
    before, after = _outputs(
        probe,
        example,
        replace(example, memory=example.memory.masked_fill(~example.mask.unsqueeze(2), 1e3)),
    )
    change = float((after - before).abs().max())
    if change <= TOLERANCE:
        return None
    if not after.isfinite().all():
        return (
            "large values in the padding cause NaN: exp of a score of padding overflows before "
            "the mask is applied."
        )
    return (
        f"other values in the padding change the result by up to {change:.3g}: the padding is not "
        "masked completely."
    )


def depends_on_query(probe: Probe) -> str | None:
    """Returns None if the attention weights depend on the query, otherwise an explanation."""
    example = probe.example()
    before, after = _outputs(probe, example, replace(example, query=example.query.flip(1) + 1))
    if (after - before).abs().max() > TOLERANCE:
        return None
    return (
        "two different queries give the same weights. In a linear score of [query; key], the "
        "query term is equal at all positions and cancels in the softmax: add a nonlinearity such "
        "as tanh before the last layer."
    )


def depends_on_memory(probe: Probe) -> str | None:
    """Returns None if permuting the source words permutes the weights, otherwise an explanation."""
    example = probe.example()
    if not all_sizes_work(probe):
        example = _part(
            example, 1, len(example.mask[0])
        )  # a single sentence, because the code may mix sentences
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    moved = example.memory.clone()
    moved[0] = moved[0, order]  # the first sentence has no padding
    before = _weights(probe, example)
    after = _weights(probe, replace(example, memory=moved))
    if before is None or after is None:
        return None
    change = float((after[0] - before[0, order]).abs().max())
    if change <= TOLERANCE:
        return None
    text = (
        "if the order of the words changes, the weight of a word should stay the same, but it "
        f"changes by up to {change:.3g}. "
    )
    if torch.allclose(after, before):
        return text + "The weights depend only on positions, not on the words."
    return (
        text + "The score depends on positions, for example by a layer with one output per "
        "position, or a convolution over the weights of the previous step."
    )


def all_sizes_work(probe: Probe) -> str | None:
    """Returns None if the code accepts a single sentence and one-word sentences, else an
    explanation.
    """
    if len(probe.lengths) == 1:
        return "the code works only for a batch of one sentence."
    example = probe.example()
    parts = {
        "a batch of one sentence": _part(example, 1, len(example.mask[0])),
        "a batch of sentences of one word": _part(example, len(example.mask), 1),
    }
    for description, part in parts.items():
        try:
            _outputs(probe, part)
        except Exception as error:  # the tested code may raise any error
            return (
                f"{description} fails ({str(error).splitlines()[0]}), probably because of "
                "squeeze() without a dimension or view() with a fixed size."
            )
    return None


def sentences_are_independent(probe: Probe) -> str | None:
    """Returns None if a sentence has equal weights alone and in a batch, otherwise an
    explanation.
    """
    if all_sizes_work(probe):
        return None
    example = probe.example()
    whole, alone = _outputs(probe, example, _part(example, 1, len(example.mask[0])))
    change = float((alone - whole[:1]).abs().max())
    if change <= TOLERANCE:
        return None
    return (
        f"the first sentence alone gets weights that differ by up to {change:.3g} from its weights "
        "in a batch: the code mixes sentences, for example by view() instead of transpose()."
    )


def _part(example: AttentionExample, sentences: int, positions: int) -> AttentionExample:
    """Returns an example cut to its first sentences and source positions."""
    return AttentionExample(
        example.query[:sentences],
        example.memory[:sentences, :positions],
        example.mask[:sentences, :positions],
    )


def can_choose_one_word(probe: Probe) -> str | None:
    """Returns None if large parameters make the weights nearly one-hot, otherwise an
    explanation.
    """
    example = probe.example()
    largest = 0.0
    # A large query alone saturates the tanh of an additive score at all positions, and so do
    # large parameters if the memory is projected outside the code.
    for query_factor, memory_factor in ((1.0, 1.0), (SCALE, 1.0), (1.0, SCALE**2)):
        weights = _weights_of_scaled(
            probe,
            AttentionExample(
                query_factor * example.query, memory_factor * example.memory, example.mask
            ),
        )
        if weights is None:
            return None
        if not weights.isfinite().all():
            return (
                "large scores cause NaN: subtract the largest score before exp, as torch.softmax "
                "does."
            )
        largest = max(largest, float(weights[0].max()))
        # The mean of up to four sharp heads has no weights between 0 and 1/4.
        blurred = (weights[0] > 0.01) & (weights[0] < 0.24)  # [S]
        if not blurred.any():
            return None
    return (
        f"if query, memory or parameters are {SCALE:g} times as large or more, the largest of "
        f"{LENGTHS[0]} weights is only {largest:.3f}. The scores are bounded, for example by tanh "
        "or a sigmoid after the last layer, so training cannot make the weights sharp."
    )


def _weights_of_scaled(probe: Probe, example: AttentionExample) -> Tensor | None:
    """Returns the checked code's attention weights with its parameters multiplied by SCALE."""
    module = probe.function
    parameters = list(module.parameters()) if isinstance(module, nn.Module) else []
    values = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.mul_(SCALE)
        try:
            return probe(example).weights
        finally:
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)


def gradients_arrive(probe: Probe) -> str | None:
    """Returns None if gradients reach the query and the memory, otherwise an explanation."""
    example = probe.example()
    query = example.query.clone().requires_grad_()
    memory = example.memory.clone().requires_grad_()
    output = _output(probe(replace(example, query=query, memory=memory)))
    if not output.requires_grad:
        return "no gradient reaches the query and the memory: remove detach(), .data or no_grad()."
    # Different coefficients, because the gradient of the sum of the weights is 0.
    coefficients = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    gradients = torch.autograd.grad(
        (coefficients * output).sum(), [query, memory], allow_unused=True
    )
    for tensor, name in zip(gradients, ("query", "memory"), strict=True):
        if tensor is None or not tensor.any():
            return (
                f"no gradient of the weights reaches the {name}: either the weights do not depend "
                f"on the {name}, or detach(), .data or argmax cut the gradient."
            )
        if not tensor.isfinite().all():
            return (
                f"the gradient of the {name} is NaN or inf, probably because of 0 · inf at a "
                "masked position."
            )
    return None


def context_is_weighted_sum(probe: Probe) -> str | None:
    """Returns None if the context is the memory sum weighted by attention, otherwise an
    explanation.

    The test applies to functions only, because a module may project the memory.
    """
    if isinstance(probe.function, nn.Module):
        return None
    example = probe.example()
    answer = probe(example)
    if answer.weights is None or answer.context is None:
        return None
    expected = (answer.weights.unsqueeze(2) * example.memory).sum(1)  # [B, M]
    change = float((answer.context - expected).abs().max())
    if change <= TOLERANCE:
        return None
    return f"the context differs by up to {change:.3g} from the weighted sum of the memory."


LAWS: dict[str, Callable[[Probe], str | None]] = {
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
"""Maps the name of each law to its test, which returns an explanation, or None if the law holds."""
