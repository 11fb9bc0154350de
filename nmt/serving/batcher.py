"""Work of many callers, done together: what comes within a few milliseconds, or while the machine is busy, is a batch."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Job = Callable[[list[Item]], list[Result]]


@dataclass(frozen=True)
class _Waiting(Generic[Item]):
    item: Item
    result: asyncio.Future[Any]


class Batcher(Generic[Item, Result]):
    """`work` does a list of items in a thread of `pool`, at most `most` at a time, and only such of a similar `size`. The
    first of a batch waits `wait` seconds for others; what comes while a batch is done waits for its end. If `work` fails,
    each of its items is tried alone, so that an error is told to the caller whose item it is."""

    def __init__(
        self,
        work: Job[Item, Result],
        pool: Executor,
        *,
        wait: float,
        most: int,
        size: Callable[[Item], int],
    ) -> None:
        self.work, self.wait, self.most, self.size, self._pool = work, wait, most, size, pool
        self._waiting: collections.deque[_Waiting[Item]] = collections.deque()
        self._running: asyncio.Task[None] | None = None

    async def do(self, items: Sequence[Item]) -> list[Result]:
        """The results of some items. Raises what `work` raises for one of them. If the caller gives up, those that have not
        begun are left out."""
        loop = asyncio.get_running_loop()
        own = [_Waiting(item, loop.create_future()) for item in items]
        self._waiting.extend(own)
        if self._running is None:
            self._running = loop.create_task(self._run())
        try:
            return [await one.result for one in own]
        finally:
            for one in own:
                if one.result.done() and not one.result.cancelled():
                    one.result.exception()  # seen, if another was raised before it
                one.result.cancel()

    async def _run(self) -> None:
        try:
            await asyncio.sleep(self.wait)
            while self._waiting:
                batch = self._next()
                items = [one.item for one in batch]
                found = await asyncio.get_running_loop().run_in_executor(
                    self._pool, self._each, items
                )
                for one, result in zip(batch, found, strict=True):
                    if one.result.done():
                        continue
                    if isinstance(result, Exception):
                        one.result.set_exception(result)
                    else:
                        one.result.set_result(result)
        finally:
            self._running = None

    def _next(self) -> list[_Waiting[Item]]:
        """The one that has waited longest, with others that are not more than twice as large."""
        waiting = [one for one in self._waiting if not one.result.done()]
        most = 2 * self.size(waiting[0].item) + 20 if waiting else 0
        batch = [one for one in waiting if self.size(one.item) <= most][: self.most]
        taken = {id(one) for one in batch}
        self._waiting = collections.deque(one for one in waiting if id(one) not in taken)
        return batch

    def _each(self, items: list[Item]) -> Sequence[Result | Exception]:
        try:
            return self.work(items) if items else []
        except Exception as error:
            return (
                [error]
                if len(items) == 1
                else [result for item in items for result in self._each([item])]
            )
