"""Batches of the work of many callers: items that arrive within a few milliseconds, or while a
batch is computed."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_COST = 1_000_000
"""Number of items times the square of the largest size in a batch. The time of a search grows with
both; a batch cannot be interrupted, and other callers wait for its end."""


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[Item]):
    item: Item
    size: int
    turn: int
    result: asyncio.Future[Any]


class Batcher(Generic[Item, Result]):
    """Computes items in batches of similar size. If a batch fails, each of its items is computed
    alone, so that its caller gets its own error.

    work: computes a list of items
    pool: thread for the work
    wait: seconds that a first item waits for others
    most: largest number of items in a batch
    size: size of an item; the items of a batch are at most twice as large as its first one

    Callers take turns: one with many items does not delay one with few.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], list[Result]],
        pool: Executor,
        *,
        wait: float,
        most: int,
        size: Callable[[Item], int],
    ) -> None:
        self.work = work
        self.wait = wait
        self.most = most
        self.size = size
        self._pool = pool
        self._waiting: list[_Waiting[Item]] = []
        self._running: asyncio.Task[None] | None = None

    async def do(self, items: Sequence[Item]) -> list[Result]:
        """Results of some items. Raises the error of `work` for one of them. Items that have not
        begun are dropped if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        # From the turn of the items that wait already, so that callers take turns from now on.
        start = min((entry.turn for entry in self._waiting), default=0)
        waiting = [
            _Waiting(item, self.size(item), turn, loop.create_future())
            for turn, item in enumerate(items, start)
        ]
        self._waiting += waiting
        # One task computes batches until nothing waits.
        if self._running is None:
            self._running = loop.create_task(self._run())
        try:
            return await asyncio.gather(*(entry.result for entry in waiting))
        finally:
            for entry in waiting:
                entry.result.cancel()  # without effect on those that are done

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self.wait)
            while batch := self._next_batch():
                items = [waiting.item for waiting in batch]
                results = await loop.run_in_executor(self._pool, self._results, items)
                # The caller may have disconnected.
                for waiting, result in zip(batch, results, strict=True):
                    if waiting.result.done():
                        continue
                    if isinstance(result, Exception):
                        waiting.result.set_exception(result)
                    else:
                        waiting.result.set_result(result)
        finally:
            self._running = None

    def _next_batch(self) -> list[_Waiting[Item]]:
        """Items of all callers in turn, of at most twice the size of the first."""
        live = [entry for entry in self._waiting if not entry.result.done()]
        ordered = sorted(live, key=lambda entry: entry.turn)
        similar = [entry for entry in ordered if entry.size <= 2 * ordered[0].size + 20]
        largest = accumulate((entry.size for entry in similar[: self.most]), max)
        costs = [count * size**2 for count, size in enumerate(largest, 1)]
        # The first item is computed whatever it costs.
        count = max(1, bisect_right(costs, MAX_COST))
        batch = similar[:count]
        # those of disconnected callers are dropped
        self._waiting = [entry for entry in live if entry not in batch]
        return batch

    def _results(self, items: list[Item]) -> Sequence[Result | Exception]:
        try:
            return self.work(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            # Each caller gets its own result or error.
            return [result for item in items for result in self._results([item])]
