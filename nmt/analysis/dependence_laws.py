"""Laws of attention code: the attention weights depend on query and memory, but not on the other
sentences of a batch, and the code accepts all batch sizes and sentence lengths.

Each function tests one law: it calls the code on tiny examples, and raises BrokenLaw if the code
breaks the law.
"""

from dataclasses import replace

import torch

from nmt.analysis.attention_probe import AttentionExample, Probe
from nmt.analysis.laws import difference, require, require_equal, tolerance
from nmt.foundation.errors import first_line


def depends_on_query(probe: Probe) -> None:
    """Requires that the attention weights depend on the query."""
    example = probe.example()
    changed = replace(example, query=example.query.flip(1) + 1)
    output = probe(example).output
    require(
        not difference(probe(changed).output, output) <= tolerance(output),  # NaN is no evidence
        "two different queries give the same weights. In a linear score of [query; key], the "
        "query term is equal at all positions and cancels in the softmax: add a nonlinearity such "
        "as tanh before the last layer.",
    )


def depends_on_memory(probe: Probe) -> None:
    """Requires that permuting the source words permutes the attention weights in the same way."""
    example = probe.example()
    if _size_problem(probe) is None:
        example = _alone(example)  # the code may mix the sentences of a batch
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    moved = example.memory.clone()
    moved[0] = moved[0, order]  # the first sentence has no padding
    before = probe.weights(example)
    after = probe.weights(replace(example, memory=moved))
    cause = (
        "The weights depend only on positions, not on the words."
        if torch.allclose(after, before)
        else "The score depends on positions, for example by a layer with one output per position, "
        "or a convolution over the weights of the previous step."
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
                f"{description} fails ({first_line(error)}), probably because of "
                "squeeze() without a dimension or view() with a fixed size."
            )
    return None


def _alone(example: AttentionExample) -> AttentionExample:
    """Returns an example with only the first sentence."""
    return AttentionExample(example.query[:1], example.memory[:1], example.mask[:1])


def sentences_are_independent(probe: Probe) -> None:
    """Requires that a sentence gets the same attention weights alone as in a batch."""
    if _size_problem(probe):
        return
    example = probe.example()
    require_equal(
        probe(_alone(example)).output,
        probe(example).output[:1],
        "the first sentence alone gets attention weights that differ by up to {} from its weights "
        "in a batch: the code mixes sentences, for example by view() instead of transpose().",
    )


@torch.enable_grad()
def gradients_arrive(probe: Probe) -> None:
    """Requires that gradients reach the query and the memory."""
    example = probe.example()
    query = example.query.clone().requires_grad_()
    memory = example.memory.clone().requires_grad_()
    output = probe(replace(example, query=query, memory=memory)).output
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
        require(
            gradient is not None and gradient.any(),
            f"no gradient of the attention weights reaches the {name}: either the weights do not "
            f"depend on the {name}, or detach(), .data or argmax cut the gradient.",
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
    weights = probe.weights(example)
    context = probe(example).context
    if isinstance(probe.function, torch.nn.Module) or context is None:
        return
    require_equal(
        context,
        (weights.unsqueeze(2) * example.memory).sum(1),  # [B, M]
        "the context differs by up to {} from the weighted sum of the memory. If the code projects "
        "the memory, test its module instead, to which this law does not apply.",
    )
