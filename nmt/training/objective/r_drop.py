"""R-Drop (Liang et al. 2021, eq. 1-4): two forward passes with different dropout are trained to
agree.

    L = Σ_t ½ (CE(p_t) + CE(q_t)) + α/4 Σ_t (KL(p_t ‖ q_t) + KL(q_t ‖ p_t))        α = `agreement`

p_t and q_t are the distributions of the token at position t in both passes, CE is the
cross-entropy and KL the Kullback-Leibler divergence. The loss is half of the paper's, and
therefore comparable with the loss of a single pass. An update takes twice as long as with
cross-entropy.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nmt.foundation.configurations import flat
from nmt.foundation.interfaces import Batch, Loss
from nmt.foundation.part_limits import ConfigError, RunView, broken
from nmt.foundation.ranges import Fraction, Positive
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.cross_entropy import CrossEntropy, likelihood_loss


@dataclass(kw_only=True)
class RDrop:
    """R-Drop: cross-entropy of two forward passes with different dropout, plus α times their
    divergence. Validation uses the plain cross-entropy.

    agreement: α, weight of the divergence in the loss
    label_smoothing: label smoothing of the cross-entropy, 0 to 1
    """

    agreement: Positive = 1.0
    label_smoothing: Fraction = 0.0

    can_be_recorded = True
    """True: updates can be recorded as CUDA graphs, because the loss depends only on the network
    and the batch."""

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if the network has no dropout, because both passes would be equal. Yields
        an error for a copy mechanism and for a mixture with a lexicon, because R-Drop compares only
        distributions over the vocabulary."""
        yield from broken(
            (
                not cls._drops(run),
                "objective",
                "compares two passes with different dropout masks, but every dropout probability "
                "is 0; set model.dropout above 0",
                "r_drop",
            ),
            (
                run.value("model.copy"),
                "model.copy",
                "cannot be combined with objective=r_drop, which compares only distributions over "
                "the vocabulary and would ignore copied words; set model.copy=false",
                True,
            ),
            (
                run.value("model.lexicon") and run.value("model.lexicon_use") == "mixture",
                "model.lexicon_use",
                "cannot be combined with objective=r_drop, which compares the softmax "
                "distributions before the lexicon is mixed in; set model.lexicon_use=bias",
                "mixture",
            ),
        )

    @staticmethod
    def _drops(run: RunView) -> bool:
        """Returns whether any component of the network applies dropout."""
        names = ("word_dropout", "readout_dropout", "recurrent_dropout", "feature_dropout")
        network = {group: run.value(group) or {} for group in ("model", "encoder", "decoder")}
        for key, value in flat(network).items():
            part, name = key.rpartition(".")[::2]
            # In encoder and decoder, `dropout` has an effect only between layers.
            between = part == "model" or (run.value(f"{part}.num_layers") or 1) > 1
            if value and (name in names or (name == "dropout" and between)):
                return True
        return False

    def __call__(self, model: Seq2Seq, batch: Batch, update: int, total: int = 0) -> Loss:
        if not model.training:
            return CrossEntropy()(model, batch, update)
        twice = batch.repeated(2)  # rows 2i and 2i + 1 are the same sentence pair
        output, memory = model.teacher_forcing(twice)
        loss, nll = likelihood_loss(
            model, output, memory, twice.targets, self.label_smoothing, self.agreement
        )
        return Loss(total=loss / 2, nll=nll / 2, num_tokens=batch.num_tokens)
