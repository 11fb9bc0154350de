"""Gradient of the training loss: forward and backward passes of an update."""

import hashlib
import logging
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nmt.foundation.capture import Recordings, bucket, copy_into
from nmt.foundation.devices import Precision
from nmt.foundation.interfaces import TrainingBatch, to_device
from nmt.training.epoch_plan import PlannedBatch
from nmt.training.state import TrainingState
from nmt.training.task import Task

log = logging.getLogger(__name__)
AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Autocast dtype of the matrix multiplications, by precision; None disables autocast."""


@dataclass(frozen=True)
class GradientWork:
    """Computation of the gradient of one batch.

    batch: batch on the device
    tokens: number of tokens of the update, over all ranks
    weight: factor of the batch's loss: 1, or 0 for a dummy batch
    update: number of updates so far
    total: number of updates in the training
    """

    batch: Any
    tokens: float | Tensor
    weight: float
    update: int
    total: int


class Gradient:
    """Gradient of the mean loss per token.

    task: network, objective and seed of the training
    state: training state, whose parameters get the gradient
    precision: precision of the matrix multiplications
    capture: whether the computation is recorded once per batch shape and then replayed; None
        records on a GPU only
    """

    def __init__(
        self, task: Task, state: TrainingState, *, precision: Precision, capture: bool | None
    ) -> None:
        self.task = task
        self.state = state
        self.ranks = task.ranks
        self.network = task.ranks.wrapped(task.network)
        self.estimates = task.network.estimates()
        self.device = state.parameters[0].device
        self.autocast = AUTOCAST[precision]
        is_captured = self._captures(capture)
        self.recordings = (
            Recordings(self._add, self.device, state.unchanged) if is_captured else None
        )
        state.keeps_gradients = is_captured

    def _captures(self, capture: bool | None) -> bool:
        """Returns whether the computation is recorded, and logs the reason if this is impossible.

        capture: argument of the constructor
        """
        if capture is None:
            capture = self.device.type == "cuda"
        obstacle = (
            "several processes exchange gradients"
            if self.ranks.several
            else self.task.capture_obstacle
        )
        if capture and obstacle:
            log.info("trainer.capture: updates run without CUDA graphs, because %s", obstacle)
        return capture and not obstacle

    def accumulate(
        self, share: list[tuple[PlannedBatch, TrainingBatch]], total: int
    ) -> tuple[int, Tensor]:
        """Adds the gradient of one update to the accumulated gradient: that of the mean loss per
        token over all ranks' batches.

        share: batches that this rank processes
        total: number of updates in the training

        Returns the number of tokens over all ranks, and the loss summed over the tokens of this
        rank.
        """
        # without dummy batches
        counted = sum(batch.num_tokens for planned, batch in share if planned.weight)
        [tokens] = self.ranks.sums(counted)  # over all ranks
        loss = torch.zeros((), device=self.device)
        for place, (planned, batch) in enumerate(share, 1):
            # Ranks exchange gradients only after the last batch.
            with self.ranks.last(self.network, place == len(share)):
                loss = loss + self._add_batch(planned, batch, total, tokens)
        self.ranks.mean(self.estimates)
        return int(tokens), loss

    def _add_batch(
        self, planned: PlannedBatch, batch: TrainingBatch, total: int, tokens: float
    ) -> Tensor:
        """Adds the gradient of one batch, divided by the number of tokens of the update, to the
        accumulated gradient. Returns the loss, summed over tokens."""
        progress = self.state.progress
        work = GradientWork(batch, tokens, planned.weight, progress.update, total)
        recording = None
        if self.recordings is not None:
            padded = replace(work, batch=work.batch.padded(bucket), tokens=torch.tensor(tokens))
            fixed = to_device(padded, self.device)
            recording = self.recordings.get(fixed)
        # A new recording has drawn random numbers.
        _seed(self.task.seed, progress.epoch, planned.number, self.device)
        if recording is None:
            return self._add(replace(work, batch=to_device(batch, self.device)))
        copy_into(recording.inputs, fixed)
        return recording.replay()

    def _add(self, work: GradientWork) -> Tensor:
        """Computes the loss, adds its gradient to the accumulated gradient, and returns the loss
        summed over tokens.
        """
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            loss = self.network(self.task.objective, work.batch, work.update, work.total)
        # Ranks average their gradients, so the loss is multiplied by the number of ranks.
        summed = loss.total * (work.weight * self.ranks.count)
        self.state.scaler.scale(summed / work.tokens).backward()
        return loss.total.detach() * work.weight


def _seed(seed: int, epoch: int, batch: int, device: torch.device) -> None:
    """Seeds the random number generators of the CPU and of a device before a batch. The seed is
    computed from the run's seed, the epoch and the batch index, and is independent of the number
    of ranks and of interruptions."""
    key = hashlib.blake2b(f"{seed} {epoch} {batch}".encode(), digest_size=8).digest()
    number = int.from_bytes(key, "little", signed=True)
    # torch.manual_seed takes a millisecond, in which it prepares the seeds of absent devices.
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(number)
    elif device.type != "cpu":
        torch.manual_seed(number)
