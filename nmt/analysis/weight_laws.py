"""Laws of attention weights: they are a distribution over the words, and padding gets none.

Each function tests one law: it calls the code on tiny examples, and raises BrokenLaw if the code
breaks the law. The message contains the wrong weights and the probable cause.
"""

from dataclasses import replace

from torch import Tensor, nn

from nmt.analysis.attention_probe import LENGTHS, AttentionExample, Probe
from nmt.analysis.laws import BrokenLaw, require, require_equal, tolerance

SCALE = 1024.0
"""Factor by which a test multiplies the query and the learned parameters of a score function.

Unless the scores are bounded, the attention weights then become one-hot. The factor is a power of
2, so that dividing the parameters by the factor restores them exactly.
"""


def _row(weights: Tensor) -> str:
    return "(" + ", ".join(f"{weight:.3f}" for weight in weights.tolist()) + ")"


def _first_cause(*causes: tuple[bool | Tensor, str], otherwise: str) -> str:
    """Returns the probable cause of a broken law: the first text whose condition is true.

    causes: pairs (condition, text)
    otherwise: text if no condition is true
    """
    return next((text for is_cause, text in causes if is_cause), otherwise)


def sums_to_one(probe: Probe) -> None:
    """Requires that the attention weights of each query are ≥ 0 and sum to 1."""
    example = probe.example()
    weights = probe.weights(example)  # [B, S]
    sums = weights.sum(1)  # [B]
    errors = (sums - 1).abs()  # [B]
    limit = tolerance(weights)
    is_distribution = (weights >= 0).all() and errors.max() <= limit
    if not is_distribution:  # also for NaN
        worst = int(errors.argmax())
        cause = _first_cause(
            (
                (weights.sum(0) - 1).abs().max() <= limit,
                "The weights sum to 1 over the sentences of the batch: the softmax has the wrong "
                "dimension.",
            ),
            (
                (weights < 0).any() or weights.max() > 1 + limit,
                "The code returns scores: add a softmax over the source positions.",
            ),
            (
                errors[0] <= limit,
                "Only sentences with padding are wrong: mask the scores before the softmax "
                "instead of the weights after it.",
            ),
            otherwise="The weights change after the softmax, for example by an epsilon in the "
            "denominator.",
        )
        raise BrokenLaw(
            f"the attention weights of the source sentence of length {LENGTHS[worst]}, "
            f"{_row(weights[worst])}, sum to {sums[worst]:.6g} instead of 1. {cause}"
        )
    for sign in (1, -1):
        scaled = _weights_of_scaled(probe, replace(example, query=sign * example.query))
        require(
            # NaN is reported by the law of can_choose_one_word.
            (scaled.sum(1) - 1).nan_to_num(0.0).abs().max() <= limit,
            f"with parameters {SCALE:g} times as large, the attention weights of a sentence do not "
            "sum to 1. A masked score of 0 has this effect if all other scores are large and "
            "negative: use -inf.",
        )


def ignores_padding(probe: Probe) -> None:
    """Requires that the tested code gives padding a weight of exactly 0."""
    example = probe.example()
    weights = probe.weights(example)  # [B, S]
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
        otherwise="The mask has no effect on the softmax: set the scores of padding to -inf "
        "before the softmax.",
    )
    raise BrokenLaw(
        f"in a batch with longer sentences, padding gets {on_padding[worst]:.3g} of the attention "
        f"weight of the sentence of length {LENGTHS[worst]}. The weights of this sentence are "
        f"{_row(weights[worst])}. {cause}"
    )


def content_of_padding(probe: Probe) -> None:
    """Requires that the content of padding does not affect the result."""
    example = probe.example()
    # Large values in the padding reveal incomplete masking.
    memory = example.memory.masked_fill(~example.mask.unsqueeze(2), 1e3)
    changed = probe(replace(example, memory=memory)).output
    require(
        changed.isfinite().all(),
        "large values in the padding cause NaN: exp of a score of padding overflows before the "
        "mask is applied.",
    )
    require_equal(
        changed,
        probe(example).output,
        "other values in the padding change the result by up to {}: the padding is not masked "
        "completely.",
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
        return probe.weights(example)
    finally:
        for parameter in parameters:
            parameter.div_(SCALE)
