"""Trainable networks: `Seq2Seq` for translation and `Seq2Label` for text classification.

Reading order: this file, seq2seq, copying, lexical, seq2label, construction, uninitialized.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from nmt.foundation.interfaces import Loss

Objective = Callable[[Any, Any, int, int], Loss]
"""Type of training objectives: (network, batch, updates done so far, total number of updates) →
loss. Each objective is one file in nmt/training/objective."""


class Network(nn.Module):
    """Base class of trainable networks."""

    def forward(self, objective: Objective, batch: Any, update: int, total: int = 0) -> Loss:
        """Returns the loss of a batch. The objective runs inside this one call, so that a wrapper
        such as DistributedDataParallel sees every use of the network.

        objective: function of the network, the batch, `update` and `total`
        batch: a batch of the type that the network reads
        update: number of updates done so far
        total: number of updates in the whole training; 0 if unknown
        """
        return objective(self, batch, update, total)

    def estimates(self) -> list[Tensor]:
        """Returns the tensors that modules estimate during training without gradients. Each module
        lists the names of its tensors in the attribute `estimates`."""
        return [
            getattr(module, name)
            for module in self.modules()
            if module is not self
            for name in getattr(module, "estimates", ())
        ]
