"""Limits of a server: sizes, counts, times and keys."""

import hmac
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

MINUTE = 60
"""Seconds."""
MAX_CALLERS = 10_000
"""Callers to remember; beyond, those that were idle for a minute are forgotten."""


@dataclass(eq=False)
class Refused(Exception):
    """An HTTP error in answer to a request.

    status: HTTP status
    message: reason
    retry_after: seconds until the request may be repeated; None if that does not help
    """

    status: int
    message: str
    retry_after: int | None = None


@dataclass(frozen=True)
class Limits:
    """Limits of requests.

    characters: largest number of characters of all texts of a request
    texts: largest number of texts of a request
    bytes: largest number of bytes of a body
    seconds: until an answer
    open: requests in progress
    per_minute: requests of a caller; 0 for no limit
    keys: valid API keys; none to answer without a key
    """

    characters: int
    texts: int
    bytes: int
    seconds: float
    open: int
    per_minute: int = 0
    keys: Sequence[str] = ()

    def check_texts(self, texts: Sequence[str], name: str = "q") -> None:
        """Raises Refused if there are too many texts, or characters in them."""
        counts = (
            (len(texts), self.texts, "texts"),
            (sum(map(len, texts)), self.characters, "characters"),
        )
        for count, limit, unit in counts:
            if count > limit:
                raise Refused(413, f"{name}: {count:,} {unit}; at most {limit:,} are taken at once")

    def check_key(self, key: str) -> None:
        """Raises Refused for an invalid key. The key is compared with all, in constant time."""
        encoded = key.encode("utf-8", "replace")
        # A list, so that a match does not end the comparison early.
        matches = [hmac.compare_digest(encoded, valid.encode()) for valid in self.keys]
        if self.keys and not any(matches):
            raise Refused(403, "this api_key is not valid" if key else "a valid api_key is needed")


class Pace:
    """Times of the requests of each caller in the last minute."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._times: dict[str, deque[float]] = {}

    def take(self, caller: str) -> None:
        """Counts a request. Raises Refused if the caller had too many in the last minute."""
        if not self.per_minute:
            return
        now = time.monotonic()
        if len(self._times) > MAX_CALLERS:
            self._times = {
                who: times for who, times in self._times.items() if now - times[-1] < MINUTE
            }
        times = self._times.setdefault(caller, deque())
        while times and now - times[0] >= MINUTE:
            times.popleft()  # older than a minute
        if len(times) >= self.per_minute:
            wait = math.ceil(MINUTE - (now - times[0]))
            raise Refused(429, f"more than {self.per_minute:,} requests in a minute", max(1, wait))
        times.append(now)
