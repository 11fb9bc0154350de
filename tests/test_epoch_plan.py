"""The plan of an epoch: which batches make which update, on which rank, and when it is validated."""

import math

from hypothesis import given
from hypothesis import strategies as st

from nmt.foundation.ranks import Ranks
from nmt.training.epoch_plan import EpochPlan


def plan_of(**settings):
    usual = {
        "epoch": 0, "batches": 10, "ranks": Ranks(), "accumulate": 1, "updates_before": 0, "epochs": 3
    }  # fmt: skip
    return EpochPlan(**{**usual, **settings})


small = st.integers(1, 7)


@given(batches=st.integers(1, 40), accumulate=small, count=small, start=st.integers(0, 5))
def test_every_batch_counts_once_and_every_rank_computes_as_many(batches, accumulate, count, start):
    plans = [
        plan_of(batches=batches, accumulate=accumulate, ranks=Ranks(number, count))
        for number in range(count)
    ]
    first = min(start * accumulate * count, batches)
    updates = plans[0].updates_from(first)
    assert [number for update in updates for number in update] == [*range(first, batches)]
    for update in updates:
        shares = [plan.share(update) for plan in plans]
        counted = [planned.number for share in shares for planned in share if planned.weight]
        assert sorted(counted) == [*update]
        assert len({len(share) for share in shares}) == 1
        assert all(planned.number in update for share in shares for planned in share)


@given(batches=st.integers(1, 40), accumulate=small, done=st.integers(0, 39))
def test_no_batch_is_left_out_after_a_change_of_the_batches_per_update(batches, accumulate, done):
    """The last epoch of a run that had one batch per update."""
    done = min(done, batches)
    remaining = math.ceil((batches - done) / accumulate)
    before = done - (math.ceil(batches / accumulate) - remaining)  # as in TrainingLoop._plan
    plan = plan_of(batches=batches, accumulate=accumulate, updates_before=before, epochs=1)
    updates = plan.updates_from(done)
    assert [number for update in updates for number in update] == [*range(done, batches)]
    assert plan.total_updates == done + remaining


@given(batches=st.integers(1, 40), accumulate=small, done=st.integers(0, 5))
def test_a_resumed_epoch_has_the_rest_of_the_updates(batches, accumulate, done):
    plan = plan_of(batches=batches, accumulate=accumulate)
    updates = plan.updates_from(0)
    done = min(done, len(updates))
    first = updates[done - 1].stop if done else 0
    assert plan.updates_from(first) == updates[done:]


def test_the_number_of_updates_of_the_training():
    assert plan_of(accumulate=3).total_updates == 3 * math.ceil(10 / 3)
    assert plan_of(epoch=1, updates_before=10, max_updates=15).total_updates == 15
    assert len(plan_of(epoch=1, updates_before=10, max_updates=15).updates_from(0)) == 5
    assert plan_of(epoch=1, updates_before=10, max_updates=8).updates_from(0) == []
    # The data of a mixture ends in the middle of the second epoch, which has 5 of 10 batches.
    half = plan_of(epoch=1, batches=5, updates_before=10, epochs=1.5, epochs_of_data=1.5)
    assert half.total_updates == 15
    assert half.position(5) == 1.5
    assert due(half, every=0.25) == [13, 15]


def due(plan, every=1.0, every_updates=0):
    """The updates of an epoch after which it is validated."""
    return [
        plan.updates_before + n
        for n, update in enumerate(plan.updates_from(0), 1)
        if plan.is_validation_due(plan.updates_before + n, update.stop, every, every_updates)
    ]


def test_validation_by_epochs_and_by_updates():
    assert due(plan_of()) == [10]
    assert due(plan_of(), every=0.5) == [5, 10]
    assert due(plan_of(), every=0.01) == [*range(1, 11)]
    assert due(plan_of(epoch=1, updates_before=10), every=2) == [20]
    assert due(plan_of(), every=1.5) == []
    assert due(plan_of(epoch=1, updates_before=10), every=1.5) == [15]
    assert due(plan_of(), every_updates=4) == [4, 8]


def test_the_end_of_the_training_is_validated():
    assert due(plan_of(epoch=2, updates_before=20), every=50) == [30]
    assert due(plan_of(max_updates=7), every_updates=4) == [4, 7]
