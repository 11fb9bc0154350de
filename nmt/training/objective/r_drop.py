"""R-Drop (Liang et al. 2021, eq. 1-4).

Each pair is read twice, with other dropout each time, and the two distributions p and q of a word
shall agree:

    L = Σ_t ½ (CE(p_t) + CE(q_t)) + α/4 Σ_t (KL(p_t ‖ q_t) + KL(q_t ‖ p_t))        α = `agreement`

half of the paper's sum, so that a loss is comparable with that of one reading. An update costs
twice as much.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nmt.foundation.configurations import flat
from nmt.foundation.interfaces import Batch, Loss
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import Fraction, Positive
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.objective.reinforce import likelihood_loss


@dataclass(kw_only=True)
class RDrop:
    """Cross-entropy of two readings with different dropout, and α times their divergence.
    Validation is the plain cross-entropy."""

    agreement: Positive = 1.0
    label_smoothing: Fraction = 0.0

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """A network without dropout, or one that copies."""
        if not cls._drops(run):
            yield ConfigError(
                "objective",
                "compares two readings with different dropout, and nothing is dropped: "
                "set model.dropout",
                "r_drop",
            )
        if run.value("model.copy"):
            yield run.error(
                "model.copy",
                "is not for objective=r_drop: copied words are in no vocabulary, "
                "whose distributions it compares",
            )

    @staticmethod
    def _drops(run: RunView) -> bool:
        """Whether any part of the network has dropout in effect."""
        names = ("word_dropout", "readout_dropout", "recurrent_dropout", "feature_dropout")
        network = {group: run.value(group) or {} for group in ("model", "encoder", "decoder")}
        for key, value in flat(network).items():
            part, name = key.rpartition(".")[::2]
            # Dropout of encoder and decoder acts between layers.
            between = part == "model" or (run.value(f"{part}.num_layers") or 1) > 1
            if value and (name in names or (name == "dropout" and between)):
                return True
        return False

    def __call__(self, model: Seq2Seq, batch: Batch, step: int, total: int = 0) -> Loss:
        if not model.training:
            return CrossEntropy()(model, batch, step)
        twice = batch.repeated(2)  # rows 2i and 2i + 1 are the same pair
        output, memory = model.teacher_forcing(twice)
        loss, nll = likelihood_loss(
            model, output, memory, twice.targets, self.label_smoothing, self.agreement
        )
        return Loss(total=loss / 2, nll=nll / 2, num_tokens=batch.num_tokens)
