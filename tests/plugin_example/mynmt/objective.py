"""Cross-entropy minus λ times the entropy of the predictions: Pereyra et al. 2017."""

from collections.abc import Iterator

from nmt.foundation.interfaces import PAD, Batch, Loss
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import NonNegative
from nmt.model.seq2seq import Seq2Seq


class Entropy:
    """penalty: λ, the weight of the entropy."""

    def __init__(self, *, penalty: NonNegative = 0.1) -> None:
        self.penalty = penalty

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        if run.value("model.copy"):
            yield run.error("model.copy", "is not for objective=entropy")

    def __call__(self, model: Seq2Seq, batch: Batch, update: int, total: int = 0) -> Loss:
        output, memory = model.teacher_forcing(batch)
        loss, nll = model.output_layer.loss(output, memory, batch.targets, 0.0)
        if self.penalty and model.training:
            log_probs = model.output_layer.log_probs(output, memory)[batch.targets != PAD]  # [n, V]
            loss = loss + self.penalty * (log_probs.exp() * log_probs).sum()
        return Loss(total=loss, nll=nll, num_tokens=batch.num_tokens)
