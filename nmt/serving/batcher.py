"""Dynamic batching: items from many callers that arrive within a few milliseconds, or during the
computation of another batch, are computed together.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_COST = 1_000_000
"""Maximum cost of a batch: number of items × (size of the largest item)².

The computation time grows with the cost. The limit bounds the time that other callers wait for the
end of a batch.
"""
SMOOTHING = 0.2
"""Weight of the newest batch in the moving average of the computation time, if the batch is slower
than the average; a faster batch replaces the average."""


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[Item]):
    item: Item
    size: int
    turn: int
    result: asyncio.Future[Any]


@dataclass(eq=False)
class Batcher(Generic[Item, Result]):
    """Queue that computes the items of many callers in batches of items with similar sizes.

    work: function that computes the results of a list of items
    pool: executor with a single thread, which runs `work`
    wait: seconds that the first item waits for further items
    most: maximum number of items in a batch
    size: function that returns the size of an item; the items of a batch have at most about twice
        the size of its first item
    on_queue: callback after each change of the queue; receives the number of waiting items
    on_batch: callback for each batch; receives the number of items

    If a batch fails, each item is computed alone, so that only its caller gets the error. Callers
    take turns, so that a caller with many items does not delay a caller with few items.
    """

    work: Callable[[list[Item]], list[Result]]
    pool: Executor
    wait: float
    most: int
    size: Callable[[Item], int]
    on_queue: Callable[[int], None] = lambda count: None
    on_batch: Callable[[int], None] = lambda count: None
    # Total size of the items of the current batch
    _computing: int = field(default=0, init=False)
    # Moving average over batches
    _seconds_per_size: float = field(default=0.0, init=False)
    _waiting: list[_Waiting[Item]] = field(default_factory=list, init=False)
    _running: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def expected_seconds(self) -> float:
        """Expected seconds until the waiting items are computed; 0 before the first batch."""
        waiting = sum(entry.size for entry in self._waiting)
        return self._seconds_per_size * (waiting + self._computing)

    async def do(self, items: Sequence[Item]) -> list[Result]:
        """Computes items in batches, and returns their results in order.

        Raises the exception of the function `work` if the computation of an item fails.

        Items whose computation has not begun are dropped if the caller is cancelled.
        """
        loop = asyncio.get_running_loop()
        # Start at the turn of the waiting items, so that new callers alternate with earlier ones.
        start = min((entry.turn for entry in self._waiting), default=0)
        waiting = [
            _Waiting(item, self.size(item), turn, loop.create_future())
            for turn, item in enumerate(items, start)
        ]
        self._waiting += waiting
        self.on_queue(len(self._waiting))
        # A single task computes batches until no item waits.
        if self._running is None:
            self._running = loop.create_task(self._run())
        try:
            return await asyncio.gather(*(entry.result for entry in waiting))
        finally:
            for entry in waiting:
                entry.result.cancel()  # cancelling has no effect on finished futures
            self._waiting = [entry for entry in self._waiting if not entry.result.done()]
            self.on_queue(len(self._waiting))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self.wait)
            while batch := self._next_batch():
                items = [waiting.item for waiting in batch]
                self.on_batch(len(batch))
                self._computing = sum(waiting.size for waiting in batch)
                start = time.monotonic()
                results = await loop.run_in_executor(self.pool, self._results, items)
                latest = (time.monotonic() - start) / max(1, self._computing)
                # The first batch and small batches are slower than those of a long queue.
                weight = SMOOTHING if latest > self._seconds_per_size > 0 else 1.0
                self._seconds_per_size += weight * (latest - self._seconds_per_size)
                # The result of a disconnected client is dropped.
                for waiting, result in zip(batch, results, strict=True):
                    if waiting.result.done():
                        continue
                    if isinstance(result, Exception):
                        waiting.result.set_exception(result)
                    else:
                        waiting.result.set_result(result)
        finally:
            self._running = None
            self._computing = 0

    def _next_batch(self) -> list[_Waiting[Item]]:
        """Returns the next batch: items of all callers in turn, with sizes up to about twice the
        size of the first item.
        """
        ordered = sorted(self._waiting, key=lambda entry: entry.turn)
        # Similar sizes need little padding.
        similar = [entry for entry in ordered if entry.size <= 2 * ordered[0].size + 20]
        largest = accumulate((entry.size for entry in similar[: self.most]), max)
        costs = [count * size**2 for count, size in enumerate(largest, 1)]
        # The first item is computed even if it exceeds MAX_COST.
        count = max(1, bisect_right(costs, MAX_COST))
        batch = similar[:count]
        chosen = set(batch)
        self._waiting = [entry for entry in self._waiting if entry not in chosen]
        self.on_queue(len(self._waiting))
        return batch

    def _results(self, items: list[Item]) -> Sequence[Result | Exception]:
        try:
            return self.work(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            # Each caller gets its own result or error.
            return [result for item in items for result in self._results([item])]
