"""Whole networks: one that translates, one that classifies.

Read: this file, seq2seq, copying, lexical, seq2label, construction, uninitialized.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from nmt.foundation.interfaces import Loss

Objective = Callable[[Any, Any, int, int], Loss]
"""(network, batch, updates done so far, updates in all) → loss. An objective is one file in
nmt/training/objective."""


class Network(nn.Module):
    """Base class of trained networks."""

    def forward(self, objective: Objective, batch: Any, update: int, total: int = 0) -> Loss:
        """Loss of a batch.

        Everything that the objective does with the network happens inside this one call, so that a
        wrapper such as DistributedDataParallel sees all of it.

        objective: function of network, batch and both numbers of updates
        batch: a batch of the network's kind
        update: updates done so far
        total: updates of the whole training; 0 if unknown
        """
        return objective(self, batch, update, total)

    def estimates(self) -> list[Tensor]:
        """Tensors that parts estimate in training without gradients, as named in `estimates`."""
        return [
            getattr(module, name)
            for module in self.modules()
            if module is not self
            for name in getattr(module, "estimates", ())
        ]
