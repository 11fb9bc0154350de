"""Properties of every decoder, as functions of a network and a batch (in float64, in evaluation mode).

`truth` is the output for that batch, if it is known already."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from nmt.training.objective.cross_entropy import CrossEntropy


def run(model, data, inputs=None):
    memory = model.encode(data.source, data.source_lengths, data.pictures)
    return model.decode(
        data.inputs if inputs is None else inputs, model.decoder.initial(memory), memory
    ), memory


def all_at_once_equals_single_steps(model, data, truth=None):
    whole, memory = truth or run(model, data)
    state = model.decoder.initial(memory)
    for t in range(data.inputs.size(1)):
        step = model.decode(data.inputs[:, t : t + 1], state, memory)
        state = step.state
        torch.testing.assert_close(step.readout[:, 0], whole.readout[:, t])
        if whole.weights is not None:
            torch.testing.assert_close(step.weights[:, 0], whole.weights[:, t])
    for mine, theirs in zip(state.cells, whole.state.cells, strict=True):
        torch.testing.assert_close(mine, theirs)


def padding_changes_nothing(model, data, truth=None):
    """Garbage in padded source words, beside pictures and in memory, and more of it: same readouts."""
    truth, memory = truth or run(model, data)
    pad = torch.arange(data.source.size(1)) >= data.source_lengths.unsqueeze(1)
    longer = F.pad(data.source.masked_fill(pad, 7), (0, 3), value=9)
    changed = replace(data, source=longer, pictures=data.pictures and in_a_mess(data.pictures))
    torch.testing.assert_close(run(model, changed)[0].readout, truth.readout)
    padding = ~memory.mask.unsqueeze(-1)
    of_heads = padding.repeat(1, memory.values.size(1) // padding.size(1), 1)  # head by head
    dirty = replace(
        memory,
        keys=memory.keys.masked_fill(padding, 1e3),
        values=memory.values.masked_fill(of_heads, 1e3),
        projected_values=memory.projected_values.masked_fill(of_heads, 1e3),
    )
    again = model.decode(data.inputs, model.decoder.initial(memory), dirty)
    torch.testing.assert_close(again.readout, truth.readout)


def in_a_mess(pictures):
    """Three more rows, two more columns, and garbage outside the pictures."""
    values = F.pad(pictures.values, (0, 0, 0, 2, 0, 3))
    down, right = torch.arange(values.size(1)), torch.arange(values.size(2))
    real = (down < pictures.sizes[:, :1]).unsqueeze(2) & (right < pictures.sizes[:, 1:]).unsqueeze(
        1
    )
    return replace(pictures, values=values.masked_fill(~real.unsqueeze(3), 9.0), even=False)


def one_picture(pictures, i):
    rows, columns = pictures.sizes[i].tolist()
    return replace(
        pictures,
        values=pictures.values[i : i + 1, :rows, :columns],
        sizes=pictures.sizes[i : i + 1],
        even=True,
    )


def the_future_changes_nothing(model, data, truth=None):
    truth, _ = truth or run(model, data)
    changed = data.inputs.clone()
    changed[:, 3:] = 8
    torch.testing.assert_close(run(model, data, changed)[0].readout[:, :3], truth.readout[:, :3])


def a_batch_equals_one_by_one(model, data, truth=None):
    together, _ = truth or run(model, data)
    for i, length in enumerate(data.source_lengths):
        row = slice(i, i + 1)
        alone = replace(
            data,
            source=data.source[row, :length],
            source_lengths=data.source_lengths[row],
            pictures=data.pictures and one_picture(data.pictures, i),
            inputs=data.inputs[row],
            targets=data.targets[row],
        )
        torch.testing.assert_close(run(model, alone)[0].readout[0], together.readout[i])


def weights_are_a_distribution(model, data, truth=None):
    """Over the real source positions, at every step."""
    output, memory = truth or run(model, data)
    if output.weights is not None:
        torch.testing.assert_close(output.weights.sum(-1), torch.ones_like(output.weights[..., 0]))
        assert (output.weights >= 0).all()
        assert (output.weights.transpose(1, 2)[~memory.mask] == 0).all(), "padding has weight"


def every_parameter_learns(model, data):
    model.zero_grad()
    CrossEntropy(label_smoothing=0.1)(model, data, 0).total.backward()
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    silent = [name for name, p in parameters if p.grad is None or not p.grad.abs().sum() > 0]
    assert not silent


def gradients_agree_with_finite_differences(model, data, step=1e-6):
    """Along a random direction of all parameters at once, in float64."""
    objective, parameters = CrossEntropy(label_smoothing=0.1), list(model.parameters())
    gradients = torch.autograd.grad(objective(model, data, 0).total, parameters)
    torch.manual_seed(0)
    direction = [torch.randn_like(p) for p in parameters]
    expected = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
    losses = []
    with torch.no_grad():
        for sign in (1, -1):
            for p, d in zip(parameters, direction, strict=True):
                p += sign * step * d
            losses.append(objective(model, data, 0).total)
            for p, d in zip(parameters, direction, strict=True):
                p -= sign * step * d
    torch.testing.assert_close((losses[0] - losses[1]) / (2 * step), expected, rtol=1e-5, atol=1e-6)


def rows_of_a_beam_share_the_memory(model, data):
    """Two rows a sentence over one memory give what two copies of it would."""
    memory = model.encode(data.source, data.source_lengths, data.pictures)
    rows = torch.arange(3).repeat_interleave(2)
    state = model.decoder.initial(memory).select(rows)
    inputs = torch.randint(4, 11, (6, 4))
    shared = model.decode(inputs, state, memory)
    copied = model.decode(inputs, state, memory.select(rows))
    torch.testing.assert_close(shared.readout, copied.readout)


OF_OUTPUTS = (
    all_at_once_equals_single_steps,
    padding_changes_nothing,
    the_future_changes_nothing,
    a_batch_equals_one_by_one,
    weights_are_a_distribution,
)
OF_NETWORKS = (
    rows_of_a_beam_share_the_memory,
    every_parameter_learns,
    gradients_agree_with_finite_differences,
)


def check_all(model, data, *left_out, step=1e-6):
    """Every contract on one network. The message names each contract that fails.

    left_out: contracts that do not hold for this network.
    step: length of the finite differences.
    """
    failures = []
    truth = run(model, data)
    for contract in (*OF_OUTPUTS, *OF_NETWORKS):
        if contract in left_out:
            continue
        try:
            if contract in OF_OUTPUTS:
                contract(model, data, truth)
            elif contract is gradients_agree_with_finite_differences:
                contract(model, data, step)
            else:
                contract(model, data)
        except AssertionError as error:
            failures.append(f"{contract.__name__}: {error}")
    assert not failures, "\n".join(failures)
