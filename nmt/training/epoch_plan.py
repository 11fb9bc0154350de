"""Assignment of an epoch's batches to updates and ranks: a pure function of numbers."""

import math
from dataclasses import dataclass

from nmt.foundation.ranks import Ranks


@dataclass(frozen=True)
class PlannedBatch:
    """A batch that one rank computes as a part of an update.

    number: position in the epoch.
    weight: 1, or 0 for a dummy batch of a rank for which none is left.
    """

    number: int
    weight: int


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """Updates of one epoch.

    epoch: number of the epoch, from 0.
    batches: number of its batches.
    ranks: the processes that share them.
    accumulate: batches of each rank per update.
    updates_before: updates of the epochs before this one.
    epochs: length of the training in epochs; the last epoch of a mixture may be shorter.
    epochs_of_data: epochs after which the data ends.
    max_updates: upper bound on the updates of the training; 0: none.
    """

    epoch: int
    batches: int
    ranks: Ranks
    accumulate: int
    updates_before: int
    epochs: float
    epochs_of_data: float = math.inf
    max_updates: int = 0

    @property
    def batches_per_update(self) -> int:
        """Number of batches of all ranks in an update."""
        return self.accumulate * self.ranks.count

    @property
    def updates(self) -> int:
        """Updates of this epoch."""
        return math.ceil(self.batches / self.batches_per_update)

    @property
    def total_updates(self) -> int:
        """Updates of the whole training, if all epochs are like this one."""
        updates_of_full_epoch = self.updates / min(1, self.epochs_of_data - self.epoch)
        # The tolerance absorbs rounding errors of fractional epochs.
        following = math.ceil((self.epochs - self.epoch) * updates_of_full_epoch - 1e-9)
        total = self.updates_before + following
        return min(total, self.max_updates) if self.max_updates else total

    def updates_from(self, first_batch: int) -> list[range]:
        """The batches of each further update, all ranks together, after the first batches of the
        epoch are done."""
        update = self.updates_before + math.ceil(first_batch / self.batches_per_update)
        starts = range(first_batch, self.batches, self.batches_per_update)
        return [
            range(start, min(start + self.batches_per_update, self.batches))
            for start in starts[: max(0, self.total_updates - update)]
        ]

    def share(self, update: range) -> list[PlannedBatch]:
        """The batches of an update that this rank computes, as many on every rank.

        The ranks wait for each other's gradients, so a rank without a batch computes a dummy batch
        of weight 0.
        """
        batches = [PlannedBatch(number, 1) for number in self.ranks.share(update)]
        dummies = math.ceil(len(update) / self.ranks.count) - len(batches)
        return batches + [PlannedBatch(update[0], 0)] * dummies

    def position(self, batch: int) -> float:
        """Epochs that are done after the first batches of this one."""
        return self.epoch + batch / self.batches

    def is_validation_due(self, update: int, batch: int, every: float, every_updates: int) -> bool:
        """Whether to validate after an update.

        update: updates of the training that are done.
        batch: batches of the epoch that are done.
        every: epochs between two validations.
        every_updates: updates between two validations, which count instead of epochs; 0: by epochs.
        """
        ends_training = batch == self.batches and self.epoch + 1 >= self.epochs
        if ends_training or update == self.total_updates:
            return True
        if every_updates:
            return update % every_updates == 0
        # Shares of the epoch: one update, and all updates so far.
        step = 1 / self.updates
        done = (update - self.updates_before) / self.updates
        interval = max(every, step)
        # A validation is due when this update crosses the end of an interval.
        validations = math.floor((self.epoch + done) / interval + 1e-9)
        validations_before = math.floor((self.epoch + (done - step)) / interval + 1e-9)
        return validations > validations_before
