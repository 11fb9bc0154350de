"""Request limits of the server: request sizes, open requests, request rates and API keys."""

import hmac
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

MINUTE = 60
"""Seconds in a minute, the period of the rate limit."""
MAX_CALLERS = 10_000
"""Number of remembered callers above which callers without a request for a minute are forgotten."""


@dataclass(eq=False)
class Refused(Exception):
    """Refusal of a request, which becomes an HTTP error response.

    status: HTTP status code of the response
    message: error message for the client
    retry_after: seconds until the request may be repeated; None if repeating does not help
    """

    status: int
    message: str
    retry_after: int | None = None


@dataclass(frozen=True)
class Limits:
    """Request limits.

    characters: maximum number of characters in all texts of a request
    texts: maximum number of texts in a request
    bytes: maximum number of bytes in a request body
    seconds: maximum time until the response, in seconds
    open: maximum number of requests in progress
    per_minute: maximum number of requests per caller and minute; 0 disables the limit
    keys: valid API keys; an empty list accepts requests without a key
    """

    characters: int
    texts: int
    bytes: int
    seconds: float
    open: int
    per_minute: int = 0
    keys: Sequence[str] = ()

    def check_texts(self, texts: Sequence[str], name: str = "q") -> None:
        """Raises Refused if a field has too many texts or characters.

        texts: texts of the request
        name: name of the field in messages
        """
        counts = (
            (len(texts), self.texts, "texts"),
            (sum(map(len, texts)), self.characters, "characters"),
        )
        for count, limit, unit in counts:
            if count > limit:
                raise Refused(413, f"{name}: {count:,} {unit}, at most {limit:,} per request")

    def check_key(self, key: str) -> None:
        """Raises Refused for an invalid API key; the comparison takes constant time."""
        encoded = key.encode("utf-8", "replace")
        # A list instead of a generator, so that a match does not end the comparison early
        matches = [hmac.compare_digest(encoded, valid.encode()) for valid in self.keys]
        if self.keys and not any(matches):
            raise Refused(
                403, "api_key: invalid" if key else "api_key: missing; this server needs one"
            )


class Pace:
    """Rate limiter: maximum number of requests per caller and minute.

    per_minute: maximum number of requests per caller; 0 disables the limit
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._times: dict[str, deque[float]] = {}

    def take(self, caller: str) -> None:
        """Counts a request by a caller. Raises Refused if the caller exceeds the limit."""
        if not self.per_minute:
            return
        now = time.monotonic()
        if len(self._times) > MAX_CALLERS:
            self._times = {
                who: times for who, times in self._times.items() if now - times[-1] < MINUTE
            }
        times = self._times.setdefault(caller, deque())
        while times and now - times[0] >= MINUTE:
            times.popleft()  # requests older than a minute no longer count
        if len(times) >= self.per_minute:
            wait = math.ceil(MINUTE - (now - times[0]))
            raise Refused(429, f"more than {self.per_minute:,} requests in a minute", max(1, wait))
        times.append(now)
