"""Scheduled sampling (Bengio et al. 2015): at each position, the decoder reads either the reference word or a word
sampled from its own prediction, at random. The probability of the reference word is ε_i, the teacher-forcing ratio
after i updates.

    constant           ε = start
    linear             ε = max(end, start − (start − end) i / k)
    exponential        ε = max(end, start · e^{−i/k})
    inverse_sigmoid    ε = max(end, start · k' / (k' + e^{i/k'}) · (k'+1)/k'),  k' chosen so that ε/start = 1/2 at i = k

k is `pace`, a share of all updates, or `updates` if that is not 0. The prediction of position t is needed before t+1
is read, so training goes step by step while ε < 1.
"""

import functools
import math
from dataclasses import replace
from typing import Literal

import torch

from nmt.foundation.interfaces import BOS, PAD, Batch, DecoderOutput, Loss, Prepared
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Count, Fraction, Positive, Ratio
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.reinforce import likelihood_loss

Decay = Literal["constant", "linear", "exponential", "inverse_sigmoid"]


class ScheduledSampling:
    """Cross-entropy of the reference words; the decoder reads a mixture of reference words and sampled words.
    Validation is teacher-forced."""

    def __init__(
        self,
        *,
        label_smoothing: Fraction = 0.0,
        decay: Decay = "inverse_sigmoid",
        start: Ratio = 1.0,
        end: Ratio = 0.5,
        pace: Positive = 0.5,
        updates: Count = 0,
    ) -> None:
        if decay != "constant" and end > start:
            raise ValueError(
                f"objective.end={end:g} is above objective.start={start:g}: the ratio can only fall"
            )
        self.label_smoothing, self.decay, self.start, self.end = label_smoothing, decay, start, end
        self.pace, self.updates = pace, updates

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys of a decay that the run does not have."""
        if run.value("objective.decay") == "constant":
            why = "the ratio stays objective.start with objective.decay=constant"
            return dict.fromkeys([f"objective.{key}" for key in ("end", "pace", "updates")], why)
        updates = run.value("objective.updates")
        return {"objective.pace": f"the pace is objective.updates={updates}"} if updates else {}

    def ratio(self, step: int, total: int = 0) -> float:
        """The teacher-forcing ratio ε after `step` of `total` updates."""
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
            output, memory = self._mixed(model, batch, ratio)
        loss, nll = likelihood_loss(
            model, output, memory, batch.targets, self.label_smoothing if model.training else 0.0
        )
        return Loss(total=loss, nll=nll, num_tokens=batch.num_tokens)

    def _mixed(self, model: Seq2Seq, batch: Batch, ratio: float) -> tuple[DecoderOutput, Prepared]:
        memory = model.encode(batch.source, batch.source_lengths, batch.pictures)
        state, words, outputs = model.start(memory), batch.inputs[:, :1], list[DecoderOutput]()
        for t in range(batch.inputs.size(1)):
            output = model.decode(words, state, memory)
            state = output.state
            outputs.append(output)
            if t + 1 < batch.inputs.size(1):
                reference = batch.inputs[:, t + 1 : t + 2]
                with torch.no_grad():  # the choice of a word is not differentiated
                    log_probs = model.output_layer.log_probs(output, memory)
                    log_probs[..., [PAD, BOS]] = -torch.inf  # no search would choose them
                    sampled = torch.distributions.Categorical(logits=log_probs).sample()
                    coin = torch.rand(reference.shape, device=reference.device) < ratio
                    words = torch.where(coin | (reference == PAD), reference, sampled)
        weights = [output.weights for output in outputs if output.weights is not None]
        together = torch.cat([output.readout for output in outputs], 1)
        seen = torch.cat(weights, 1) if weights else None
        return replace(outputs[-1], readout=together, weights=seen, heads=None), memory


@functools.cache
def _solve_half(updates: int) -> float:
    """k' with (k'+1) / (k' + e^{updates/k'}) = 1/2, by bisection."""
    low, high = updates / 700, max(2.0, float(updates))
    for _ in range(80):
        middle = (low + high) / 2
        falls_late = middle + 2 > math.exp(min(updates / middle, 700.0))
        low, high = (low, middle) if falls_late else (middle, high)
    return (low + high) / 2
