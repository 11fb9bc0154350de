"""Assignment of an epoch's batches to updates and ranks."""

import math
from dataclasses import dataclass

from nmt.foundation.ranks import Ranks


def epochs_done(epoch: int, share: float, epochs_of_data: float) -> float:
    """Returns the number of epochs so far, including the finished part of the current epoch.

    epoch: number of finished epochs
    share: finished fraction of the current epoch's batches
    epochs_of_data: number of epochs that the training data covers, possibly fractional; the last
        epoch may therefore be shorter than the others
    """
    return min(epoch + share * min(1, epochs_of_data - epoch), epochs_of_data)


@dataclass(frozen=True)
class PlannedBatch:
    """Batch that one rank processes in an update.

    number: index of the batch in the epoch
    weight: factor of the batch's loss: 1, or 0 for a dummy batch on a rank without a batch
    """

    number: int
    weight: int


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """Assignment of the batches of one epoch to updates and ranks.

    epoch: index of the epoch, from 0
    batches: number of batches in the epoch
    ranks: processes (ranks) that share the batches
    accumulate: number of batches per update on each rank
    updates_before: number of updates in earlier epochs
    epochs: number of epochs to train, possibly fractional
    epochs_of_data: number of epochs that the training data covers; fractional if the schedule of a
        mixture of corpora ends within an epoch
    max_updates: maximum number of updates to train; 0 for no limit
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
        """Number of batches that all ranks together process per update."""
        return self.accumulate * self.ranks.count

    @property
    def length(self) -> float:
        """Length of the epoch: 1, or less if the training data ends within the epoch."""
        return min(1, self.epochs_of_data - self.epoch)

    @property
    def updates(self) -> int:
        """Number of updates in the epoch."""
        return math.ceil(self.batches / self.batches_per_update)

    @property
    def total_updates(self) -> int:
        """Total number of updates of the training run if all epochs have as many updates as this
        epoch."""
        updates_of_full_epoch = self.updates / self.length
        # The tolerance absorbs rounding errors of fractional epochs.
        following = math.ceil((self.epochs - self.epoch) * updates_of_full_epoch - 1e-9)
        total = self.updates_before + following
        return min(total, self.max_updates) if self.max_updates else total

    def updates_from(self, first_batch: int) -> list[range]:
        """Returns the batch indices of each remaining update, over all ranks.

        first_batch: number of finished batches of the epoch
        """
        starts = range(first_batch, self.batches, self.batches_per_update)
        update = self.updates_before + self.updates - len(starts)
        return [
            range(start, min(start + self.batches_per_update, self.batches))
            for start in starts[: max(0, self.total_updates - update)]
        ]

    def share(self, update: range) -> list[PlannedBatch]:
        """Returns the batches of an update that this rank processes. All ranks get the same number
        of batches.

        Ranks wait for each other's gradients, so a rank without a batch processes a dummy batch
        with weight 0.

        update: batch indices of the update, over all ranks
        """
        batches = [PlannedBatch(number, 1) for number in self.ranks.share(update)]
        dummies = math.ceil(len(update) / self.ranks.count) - len(batches)
        # The exchange of gradients needs all ranks.
        return batches + [PlannedBatch(update[0], 0)] * dummies

    def position(self, batch: int) -> float:
        """Returns the number of epochs so far, including the finished part of the current epoch.

        batch: number of finished batches of the epoch
        """
        return epochs_done(self.epoch, batch / self.batches, self.epochs_of_data)

    def is_validation_due(self, update: int, batch: int, every: float, every_updates: int) -> bool:
        """Returns whether a validation follows an update.

        update: number of updates so far
        batch: number of finished batches of the epoch
        every: number of epochs between two validations, possibly fractional
        every_updates: number of updates between two validations; 0 uses `every`
        """
        ends_training = batch == self.batches and self.epoch + 1 >= self.epochs
        if ends_training or update == self.total_updates:
            return True
        if every_updates:
            return update % every_updates == 0
        # Fractions of the epoch that one update, and all updates so far, amount to.
        step = self.length / self.updates
        done = (update - self.updates_before) * step
        interval = max(every, step)
        # A validation is due when this update crosses the end of an interval.
        validations = math.floor((self.epoch + done) / interval + 1e-9)
        validations_before = math.floor((self.epoch + (done - step)) / interval + 1e-9)
        return validations > validations_before
