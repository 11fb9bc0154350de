"""Word-level knowledge distillation (Kim & Rush 2016, section 3.1; Hinton et al. 2015).

At each position of the reference, the network learns the distribution q of a trained model (the
teacher) in addition to the reference token.

    L = (1 − λ) CE + λ Σ_t −Σ_v q_t(v) log p_t(v)        λ = `weight`

CE is the cross-entropy of the reference tokens, and p_t the network's distribution at position t.
With several teachers, q is the mean of their distributions.

Sequence-level distillation needs no objective of its own: it is training with cross-entropy on the
teacher's translations, which nmt.backtranslate generates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import PAD, Batch, Loss
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import Fraction, Ratio
from nmt.model.layers.numeric import only
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.cross_entropy import likelihood_loss


@dataclass(kw_only=True)
class Distillation:
    """Word-level knowledge distillation. Validation uses the plain cross-entropy.

    teacher: run folder of the teacher, or a list of run folders
    weight: λ, weight of the teacher's distribution, 0 to 1
    label_smoothing: label smoothing of the reference tokens, 0 to 1
    teachers: networks of the teachers
    """

    teacher: str | list[str] | None
    weight: Ratio = 0.5
    label_smoothing: Fraction = 0.0
    teachers: Sequence[Seq2Seq] = ()

    can_be_recorded = True
    """True: updates can be recorded as CUDA graphs, because the loss depends only on the network
    and the batch."""

    def __post_init__(self) -> None:
        if not self.teacher:
            raise ValueError(
                "objective.teacher must be the run folder of a trained model, or several run "
                "folders: [A,B]"
            )
        if self.label_smoothing and self.weight == 1:
            raise ValueError(
                "objective.label_smoothing has no effect with objective.weight=1, because the "
                "loss then contains no cross-entropy of the reference tokens"
            )
        for network in self.teachers:
            network.eval().requires_grad_(False)

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error for hard attention with REINFORCE if `weight` is 1.

        The reward of REINFORCE is the likelihood of the reference tokens, which weight=1 ignores.
        """
        if run.value("objective.weight") == 1 and run.value("window.estimator") == "reinforce":
            yield run.error(
                "window.estimator",
                "learns from the likelihood of the reference translation, but with "
                "objective.weight=1 the loss does not include it; use "
                "window.estimator=straight_through",
            )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the vocabulary keys, which have no effect in distillation, each with the reason:
        distillation uses the vocabulary of the teacher."""
        tokenizer = [key for key in run.value("tokenizer") if key not in ("_target_", "sampling")]
        keys = ["tokenizer", *(f"tokenizer.{key}" for key in tokenizer), "sizes.vocabulary"]
        return dict.fromkeys(keys, "distillation uses the vocabulary of the teacher")

    def __call__(self, model: Seq2Seq, batch: Batch, update: int, total: int = 0) -> Loss:
        output, memory = model.teacher_forcing(batch)
        loss, nll = likelihood_loss(model, output, memory, batch.targets, self.label_smoothing)
        if model.training:
            is_word = batch.targets != PAD  # [B, T]
            teacher_probs = only(self._teacher_probs(batch), is_word)  # [words, V]
            log_probs = only(model.output_layer.log_probs(output, memory), is_word)  # [words, V]
            # cross-entropy with the teacher's distribution, in nats
            distilled = -(teacher_probs * log_probs).sum()
            loss = (1 - self.weight) * loss + self.weight * distilled
        return Loss(total=loss, nll=nll, num_tokens=batch.num_tokens)

    @torch.no_grad()
    def _teacher_probs(self, batch: Batch) -> Float[Tensor, "B T V"]:
        first, *others = [  # [B, T, V] each
            teacher.output_layer.log_probs(*teacher.teacher_forcing(batch)).exp()
            for teacher in self.teachers
        ]
        return sum(others, first) / len(self.teachers)  # mean of the teachers' distributions
