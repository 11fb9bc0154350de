"""Maximum likelihood with teacher forcing: each word is predicted from the reference words before
it."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from nmt.foundation.interfaces import PAD, Batch, Loss, Prepared
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import Fraction, NonNegative
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.reinforce import likelihood_loss

SMALLEST = 1e-6
"""The smallest attention whose logarithm is taken: a window may give exactly 0."""


@dataclass(kw_only=True)
class CrossEntropy:
    """Cross-entropy of the real target words, with label smoothing (Szegedy et al. 2016).

    In training, plus λ times the doubly stochastic penalty (Xu et al. 2015, eq. 14), which is 0 if
    every source position has a total weight of 1:

        λ Σ_s (1 − Σ_t α_ts)²        λ = `doubly_stochastic`

    and γ times the cross-entropy between given alignments and attention (guided alignment, Chen et
    al. 2016, eq. 5-7), where A_ts is one over the number of links of word t for each of them:

        γ Σ_t −Σ_s A_ts log α_ts     γ = `guided_alignment`
    """

    label_smoothing: Fraction = 0.0
    doubly_stochastic: NonNegative = 0.0
    guided_alignment: NonNegative = 0.0

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Penalties that the run's attention, data or weights do not allow."""
        guided = "objective.guided_alignment"
        yield from run.needing_attention("objective.doubly_stochastic", guided)
        if not run.value(guided):
            return
        if not run.value("data.alignment"):
            yield run.error(
                guided, "needs the alignments of the training pairs: set data.alignment too"
            )
        weighing = (run.parts.get(group) for group in ("window", "normalizer"))
        if not all(getattr(part, "all_positive", True) for part in weighing):
            yield run.error(
                guided,
                "takes the logarithm of every weight: use normalizer=softmax, "
                "and neither window=hard nor monotonic",
            )

    def __call__(self, model: Seq2Seq, batch: Batch, step: int, total: int = 0) -> Loss:
        output, memory = model.teacher_forcing(batch)
        loss, nll = likelihood_loss(model, output, memory, batch.targets, self.label_smoothing)
        if self.doubly_stochastic and model.training:
            loss = loss + self.doubly_stochastic * self._unevenness(output.weights, batch, memory)
        if self.guided_alignment and model.training:
            loss = loss + self.guided_alignment * self._misalignment(output.weights, batch)
        return Loss(total=loss, nll=nll, num_tokens=batch.num_tokens)

    def _misalignment(self, weights: Tensor | None, batch: Batch) -> Tensor:
        """−Σ A log α; `weights` α and `batch.links` A are [B, T, S]."""
        if weights is None or batch.links is None:
            raise ValueError(
                "objective.guided_alignment needs a decoder with attention, and data.alignment: "
                "set it to 0"
            )
        return -(batch.links * weights.clamp(min=SMALLEST).log()).sum()

    def _unevenness(self, weights: Tensor | None, batch: Batch, memory: Prepared) -> Tensor:
        """Σ (1 − Σ_t α)² over the real source positions; `weights` α is [B, T, S]."""
        if weights is None:
            raise ValueError(
                "objective.doubly_stochastic needs a decoder with attention: set it to 0"
            )
        is_word = batch.targets != PAD  # [B, T]
        attended = (weights * is_word.unsqueeze(-1)).sum(1)  # [B, S]
        return ((1 - attended) ** 2 * memory.mask).sum()
