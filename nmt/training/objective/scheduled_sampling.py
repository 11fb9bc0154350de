"""Scheduled sampling (Bengio et al. 2015).

At each position, the decoder reads either the reference word or a word sampled from its own
prediction, at random. The probability of the reference word is ε_i, the teacher-forcing ratio after
i updates.

    constant           ε = start
    linear             ε = max(end, start − (start − end) i / k)
    exponential        ε = max(end, start · e^{−i/k})
    inverse_sigmoid    ε = max(end, start · k' / (k' + e^{i/k'}) · (k'+1)/k'),
                       k' chosen so that ε/start = 1/2 at i = k

k is `pace`, a share of all updates, or `updates` if that is not 0. The prediction of position t is
needed before t+1 is read, so training goes step by step while ε < 1.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Literal

import torch

from nmt.foundation.interfaces import BOS, PAD, Batch, DecoderOutput, Loss, Prepared
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Count, Fraction, Positive, Ratio
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.reinforce import likelihood_loss

Decay = Literal["constant", "linear", "exponential", "inverse_sigmoid"]


@dataclass(kw_only=True)
class ScheduledSampling:
    """Cross-entropy of the reference words; the decoder reads a mixture of reference words and
    sampled words. Validation is teacher-forced.

    decay: formula of the teacher-forcing ratio
    start: ratio at the beginning
    end: lower bound of the ratio
    pace: k as a share of all updates
    updates: k; 0: by `pace`
    """

    label_smoothing: Fraction = 0.0
    decay: Decay = "inverse_sigmoid"
    start: Ratio = 1.0
    end: Ratio = 0.5
    pace: Positive = 0.5
    updates: Count = 0

    def __post_init__(self) -> None:
        if self.decay != "constant" and self.end > self.start:
            raise ValueError(
                f"objective.end={self.end:g} is above objective.start={self.start:g}: the ratio "
                "can only fall"
            )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys of a decay that the run does not have."""
        if run.value("objective.decay") == "constant":
            why = "the ratio stays objective.start with objective.decay=constant"
            return dict.fromkeys([f"objective.{key}" for key in ("end", "pace", "updates")], why)
        updates = run.value("objective.updates")
        return {"objective.pace": f"the pace is objective.updates={updates}"} if updates else {}

    def ratio(self, step: int, total: int = 0) -> float:
        """The teacher-forcing ratio ε.

        step: updates done so far
        total: updates of the training
        """
        k = self.updates or max(1, round(self.pace * total))
        if self.decay == "constant":
            return self.start
        if self.decay == "linear":
            return max(self.end, self.start - (self.start - self.end) * step / k)
        if self.decay == "exponential":
            return max(self.end, self.start * math.exp(-step / k))
        s = _solve_half(k)
        falling = (s + 1) / (s + math.exp(min(step / s, 700.0)))
        return max(self.end, self.start * falling)

    def __call__(self, model: Seq2Seq, batch: Batch, step: int, total: int = 0) -> Loss:
        ratio = self.ratio(step, total) if model.training else 1.0
        if ratio >= 1:
            output, memory = model.teacher_forcing(batch)
        else:
            output, memory = _sampled_inputs(model, batch, ratio)
        loss, nll = likelihood_loss(model, output, memory, batch.targets, self.label_smoothing)
        return Loss(total=loss, nll=nll, num_tokens=batch.num_tokens)


def _sampled_inputs(model: Seq2Seq, batch: Batch, ratio: float) -> tuple[DecoderOutput, Prepared]:
    """Output of a decoder that reads the reference word with probability `ratio`, else a sampled
    one."""
    memory = model.encode(batch.source, batch.source_lengths, batch.pictures)
    state = model.start(memory)
    inputs = batch.inputs[:, :1]  # [B, 1], BOS
    outputs: list[DecoderOutput] = []
    for t in range(1, batch.inputs.size(1)):
        reference = batch.inputs[:, t : t + 1]  # [B, 1]
        outputs.append(model.decode(inputs, state, memory))
        state = outputs[-1].state
        with torch.no_grad():  # the choice of a word is not differentiated
            log_probs = model.output_layer.log_probs(outputs[-1], memory)  # [B, 1, V]
            log_probs[..., [PAD, BOS]] = -torch.inf  # no search would choose them
            sampled = torch.distributions.Categorical(logits=log_probs).sample()  # [B, 1]
            takes_reference = torch.rand(reference.shape, device=reference.device) < ratio  # [B, 1]
            inputs = torch.where(takes_reference | (reference == PAD), reference, sampled)
    outputs.append(model.decode(inputs, state, memory))
    readout = torch.cat([output.readout for output in outputs], 1)  # [B, T, D]
    all_weights = [output.weights for output in outputs if output.weights is not None]
    weights = torch.cat(all_weights, 1) if all_weights else None
    return replace(outputs[-1], readout=readout, weights=weights, heads=None), memory


@functools.cache
def _solve_half(updates: int) -> float:
    """k' with (k'+1) / (k' + e^{updates/k'}) = 1/2, by bisection."""
    low = updates / 700
    high = max(2.0, float(updates))
    for _ in range(80):
        middle = (low + high) / 2
        if middle + 2 > math.exp(min(updates / middle, 700.0)):
            high = middle
        else:
            low = middle
    return (low + high) / 2
