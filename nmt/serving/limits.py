"""What a server takes and what it refuses: sizes, counts, times and keys."""

from __future__ import annotations

import collections
import hmac
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass


class Refused(Exception):
    """A request is refused with an HTTP status; `retry_after`: seconds after which it may be given again."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


@dataclass(frozen=True)
class Limits:
    """Of a request: `characters` of all its texts, `texts`, `bytes` of its body, `seconds` until its answer. Of all
    together: `open` requests. Of each caller: requests `per_minute` (0: any). `keys`: the API keys (none: all may ask)."""

    characters: int
    texts: int
    bytes: int
    seconds: float
    open: int
    per_minute: int = 0
    keys: Sequence[str] = ()

    def check_texts(self, texts: Sequence[str], what: str = "q") -> None:
        """Raises Refused if there are too many, or they are too long."""
        if len(texts) > self.texts:
            raise Refused(
                413, f"{what}: {len(texts):,} texts; at most {self.texts:,} are taken at once"
            )
        total = sum(map(len, texts))
        if total > self.characters:
            raise Refused(
                413, f"{what}: {total:,} characters; at most {self.characters:,} are taken at once"
            )

    def check_key(self, key: str) -> None:
        """Raises Refused unless the key is one of those accepted. All are compared, each in the same time."""
        if not self.keys:
            return
        given = key.encode("utf-8", "replace")
        if not sum([hmac.compare_digest(given, own.encode()) for own in self.keys]):
            raise Refused(
                403, "a valid api_key is needed" if not key else "this api_key is not valid"
            )


class Pace:
    """How many requests of each caller came in the last minute."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._times: dict[str, collections.deque[float]] = {}

    def take(self, caller: str) -> None:
        """Counts a request. Raises Refused if there were too many."""
        if not self.per_minute:
            return
        now = time.monotonic()
        if len(self._times) > 10_000:  # nobody is remembered for longer than needed
            self._times = {
                who: times for who, times in self._times.items() if times and now - times[-1] < 60
            }
        times = self._times.setdefault(caller, collections.deque())
        while times and now - times[0] >= 60:
            times.popleft()
        if len(times) >= self.per_minute:
            wait = math.ceil(60 - (now - times[0]))
            raise Refused(
                429, f"more than {self.per_minute:,} requests in a minute", retry_after=max(1, wait)
            )
        times.append(now)
