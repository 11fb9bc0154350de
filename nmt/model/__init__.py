"""Trainable networks. `Seq2Seq` translates; `Seq2Label` classifies texts.

Modules in reading order: this file, seq2seq, copying, lexical, lexicon, seq2label, uninitialized.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Loss

Objective = Callable[[Any, Any, int, int], Loss]
"""Type of training objectives: functions (network, batch, number of updates done so far, total
number of updates) → loss. Each objective is one file in nmt/training/objective."""


class Network(nn.Module):
    """Base class of trainable networks, whose `forward` computes the training loss."""

    def forward(self, objective: Objective, batch: Any, update: int, total: int = 0) -> Loss:
        """Computes the training loss of a batch. The objective runs inside `forward`, because
        wrappers such as DistributedDataParallel only support calls of `forward`.

        objective: function (network, batch, update, total) → loss
        batch: batch of inputs of the network, with targets
        update: number of updates done so far
        total: total number of updates of the training run; 0 if unknown
        """
        loss = objective(self, batch, update, total)
        if not isinstance(loss, Loss):
            raise UserError(
                f"objective: returned {type(loss).__name__}, must be "
                "nmt.foundation.interfaces.Loss (total, nll, num_tokens)"
            )
        return loss

    @property
    def capture_obstacle(self) -> str:
        """Reason why CUDA graphs cannot capture the network on padded batches; an empty string if
        they can. A module gives its reason in its attribute `uncapturable`.
        """
        reasons = [getattr(module, "uncapturable", "") for module in self.modules()]
        return next(filter(None, reasons), "")

    def estimates(self) -> list[Tensor]:
        """Returns the tensors of the network that training updates without gradients, such as
        running means. A module lists the names of these tensors in its attribute `estimates`."""
        return [
            getattr(module, name)
            for module in self.modules()
            if module is not self  # the network's attribute is this method
            for name in getattr(module, "estimates", ())
        ]
