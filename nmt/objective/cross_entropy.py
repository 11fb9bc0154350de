"""Maximum likelihood with teacher forcing: each word is predicted from the reference words before it."""

from __future__ import annotations

from nmt.cross_entropy import linear_cross_entropy
from nmt.interfaces import PAD, Batch, Loss
from nmt.ranges import Fraction
from nmt.seq2seq import Seq2Seq


class CrossEntropy:
    """Cross-entropy of the real target words, with label smoothing (Szegedy et al. 2016)."""

    def __init__(self, *, label_smoothing: Fraction = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def __call__(self, model: Seq2Seq, batch: Batch, step: int) -> Loss:
        readout = model.readouts(batch.source, batch.source_lengths, batch.inputs)
        real = batch.targets != PAD
        smoothing = self.label_smoothing if model.training else 0.0
        total, nll = linear_cross_entropy(
            readout[real], model.output.weight, model.output.bias, batch.targets[real], smoothing
        )
        return Loss(total=total, nll=nll, num_tokens=batch.num_tokens)
