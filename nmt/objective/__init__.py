"""What training minimises: an objective is called with (model, batch, step) and returns a `Loss`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from nmt.foundation.interfaces import Batch, Loss
from nmt.network.seq2seq import Seq2Seq


@runtime_checkable
class Objective(Protocol):
    """`step` counts the updates done so far, for objectives that change as training goes on."""

    def __call__(self, model: Seq2Seq, batch: Batch, step: int) -> Loss: ...
