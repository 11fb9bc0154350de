"""Scheduled sampling (Bengio et al. 2015).

At each position, the decoder input is either the reference token or a token sampled from the
decoder's own prediction. The reference token has probability ε, the teacher-forcing ratio, which
depends on the number of updates i done so far:

    constant           ε = start
    linear             ε = max(end, start − (start − end) i / k)
    exponential        ε = max(end, start · e^{−i/k})
    inverse_sigmoid    ε = max(end, start · k' / (k' + e^{i/k'}) · (k'+1)/k'),
                       k' chosen so that ε/start = 1/2 at i = k

k is `updates`, or the fraction `pace` of all updates if `updates` is 0. While ε < 1, the decoder
processes one position at a time, because the input at position t+1 needs the prediction at
position t.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch

from nmt.foundation.interfaces import BOS, PAD, Batch, DecoderOutput, Loss, Prepared
from nmt.foundation.part_limits import ConfigError, RunView, idle_keys
from nmt.foundation.ranges import Count, Fraction, Positive, Ratio
from nmt.model.layers.numeric import exclude, sampled
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.cross_entropy import likelihood_loss


@dataclass(kw_only=True)
class ScheduledSampling:
    """Scheduled sampling: cross-entropy of the reference tokens, with a mixture of reference and
    sampled tokens as decoder inputs. Validation uses teacher forcing.

    label_smoothing: label smoothing of the cross-entropy, 0 to 1
    decay: decay schedule of the teacher-forcing ratio
    start: teacher-forcing ratio at the first update, 0 to 1
    end: lower bound of the teacher-forcing ratio, 0 to 1
    pace: decay constant k as a fraction of all updates
    updates: decay constant k in updates; 0 uses `pace`
    """

    label_smoothing: Fraction = 0.0
    decay: Literal["constant", "linear", "exponential", "inverse_sigmoid"] = "inverse_sigmoid"
    start: Ratio = 1.0
    end: Ratio = 0.5
    pace: Positive = 0.5
    updates: Count = 0

    def __post_init__(self) -> None:
        if self.decay != "constant" and self.end > self.start:
            raise ValueError(
                f"objective.end={self.end:g} must be at most objective.start={self.start:g}"
            )

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if the teacher-forcing ratio is always 1, so that nothing is sampled."""
        is_constant = run.value("objective.decay") == "constant"
        key = "objective.start" if is_constant else "objective.end"
        if run.value(key) == 1:
            yield run.error(
                key,
                "all decoder inputs would be reference tokens; set this key below 1, or "
                "objective=cross_entropy",
            )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the configuration keys that the chosen decay schedule does not use, each with the
        reason."""
        updates = run.value("objective.updates")
        return idle_keys(
            (
                run.value("objective.decay") == "constant",
                "the teacher-forcing ratio is constant with objective.decay=constant",
                "objective.end",
                "objective.pace",
                "objective.updates",
            ),
            (updates, f"objective.updates={updates} takes precedence", "objective.pace"),
        )

    def ratio(self, update: int, total: int = 0) -> float:
        """Returns the teacher-forcing ratio: the probability that a decoder input is the reference
        token.

        update: number of updates done so far
        total: maximum number of updates in the training
        """
        k = self.updates or max(1, round(self.pace * total))
        if self.decay == "constant":
            return self.start
        if self.decay == "linear":
            return max(self.end, self.start - (self.start - self.end) * update / k)
        if self.decay == "exponential":
            return max(self.end, self.start * math.exp(-update / k))
        s = _solve_half(k)
        falling = (s + 1) / (s + math.exp(min(update / s, 700.0)))  # exp(700) is finite in float64
        return max(self.end, self.start * falling)

    def __call__(self, model: Seq2Seq, batch: Batch, update: int, total: int = 0) -> Loss:
        ratio = self.ratio(update, total) if model.training else 1.0
        output, memory = (
            model.teacher_forcing(batch) if ratio >= 1 else _sampled_inputs(model, batch, ratio)
        )
        loss, nll = likelihood_loss(model, output, memory, batch.targets, self.label_smoothing)
        return Loss(total=loss, nll=nll, num_tokens=batch.num_tokens)


def _sampled_inputs(model: Seq2Seq, batch: Batch, ratio: float) -> tuple[DecoderOutput, Prepared]:
    """Runs the decoder on a batch. Each input is the reference token with probability `ratio`,
    otherwise a token sampled from the previous prediction."""
    memory = model.encode(batch.source, batch.source_lengths, batch.pictures)
    state = model.start(memory)
    inputs = batch.inputs[:, :1]  # [B, 1], BOS
    outputs: list[DecoderOutput] = []
    for t in range(1, batch.inputs.size(1)):
        reference = batch.inputs[:, t : t + 1]  # [B, 1]
        outputs.append(model.decode(inputs, state, memory))
        state = outputs[-1].state
        with torch.no_grad():  # sampling has no gradient
            log_probs = model.output_layer.log_probs(outputs[-1], memory)  # [B, 1, V]
            exclude(log_probs, PAD, BOS)  # as in a search
            drawn = sampled(log_probs.exp())  # [B, 1]
            takes_reference = torch.rand(reference.shape, device=reference.device) < ratio  # [B, 1]
            inputs = torch.where(takes_reference | (reference == PAD), reference, drawn)
    outputs.append(model.decode(inputs, state, memory))
    readout = torch.cat([output.readout for output in outputs], 1)  # [B, T, D]
    all_weights = [output.weights for output in outputs if output.weights is not None]
    weights = torch.cat(all_weights, 1) if all_weights else None
    return replace(outputs[-1], readout=readout, weights=weights, heads=None), memory


def _solve_half(updates: int) -> float:
    """Returns the decay constant k' of the inverse sigmoid decay for which (k' + 1) / (k' +
    e^{u/k'}) = 1/2, where u is `updates`. The equivalent equation k' ln(k' + 2) = u is solved by
    Newton's method."""
    k = float(updates)
    for _ in range(20):
        log = math.log(k + 2)
        k -= (k * log - updates) / (log + k / (k + 2))
    return k
