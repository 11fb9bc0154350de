"""Batches of the work of many callers: items that arrive within a few milliseconds, or while a batch is computed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Waiting(Generic[Item]):
    item: Item
    size: int
    result: asyncio.Future[Any]


class Batcher(Generic[Item, Result]):
    """Computes items in batches of similar size. If a batch fails, each of its items is computed alone, so that its caller
    gets its own error.

    work: computes a list of items
    pool: thread for the work
    wait: seconds that a first item waits for others
    most: largest number of items in a batch
    size: of an item; a batch has none more than twice as large as the first
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
        """Results of some items. Raises what `work` raises for one of them. Items that have not begun are dropped if the
        caller is cancelled."""
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(item, self.size(item), loop.create_future()) for item in items]
        self._waiting += waiting
        if self._running is None:
            self._running = loop.create_task(self._run())
        try:
            return [await one.result for one in waiting]
        finally:
            for one in waiting:
                if one.result.done() and not one.result.cancelled():
                    one.result.exception()  # retrieved, so that asyncio does not log it
                one.result.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self.wait)
            while batch := self._next_batch():
                items = [waiting.item for waiting in batch]
                results = await loop.run_in_executor(self._pool, self._results, items)
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
        """The item that has waited longest, and others of at most twice its size."""
        waiting = [one for one in self._waiting if not one.result.done()]
        largest = 2 * waiting[0].size + 20 if waiting else 0
        batch = [one for one in waiting if one.size <= largest][: self.most]
        taken = {id(one) for one in batch}
        self._waiting = [one for one in waiting if id(one) not in taken]
        return batch

    def _results(self, items: list[Item]) -> Sequence[Result | Exception]:
        try:
            return self.work(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            return [result for item in items for result in self._results([item])]
