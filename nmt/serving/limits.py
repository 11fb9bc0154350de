"""Request limits of the server: request sizes, open requests, request rates and API keys."""

import hmac
import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.exceptions import HTTPException

from nmt.data.lines import read_lines
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
MINUTE = 60
"""Seconds in a minute, the period of the rate limit."""
MAX_CALLERS = 10_000
"""Number of callers that the rate limiter stores before it removes those without a request in the
last minute."""


class Refused(HTTPException):
    """Refusal of a request, with HTTP status, message for the client, and optional headers."""


@dataclass(frozen=True)
class Limits:
    """Request limits.

    characters: maximum number of characters in all texts of a field
    texts: maximum number of texts in a field
    bytes: maximum number of bytes in a request body
    seconds: maximum time until the response, in seconds
    open: maximum number of requests in progress
    per_minute: maximum number of requests of a caller within a minute; 0 disables the limit
    keys: file with the valid API keys; None accepts requests without a key
    """

    characters: int
    texts: int
    bytes: int
    seconds: float
    open: int
    per_minute: int = 0
    keys: "KeyFile | None" = None

    def check_texts(self, texts: Sequence[str], name: str) -> None:
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
        if self.keys is None:
            return
        encoded = key.encode("utf-8", "replace")
        # A list instead of a generator, so that a match does not end the comparison early
        matches = [hmac.compare_digest(encoded, valid.encode()) for valid in self.keys.current()]
        if not any(matches):
            raise Refused(
                403,
                "api_key: invalid" if key else "api_key: missing; this server requires an API key",
            )


class KeyFile:
    """File of API keys, one per line, which is read again when it changes. Lines that begin with #
    are comments.

    path: path of the file

    Raises UserError if the file cannot be read or contains no keys.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = file_stamp(path)
        self._keys = self._read()

    def current(self) -> Sequence[str]:
        """Returns the API keys in the file; the previous API keys while the file is unusable."""
        stamp = file_stamp(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._keys = self._read()
                log.info("keys=%s: read %d API keys", self.path, len(self._keys))
            except (OSError, UserError) as error:
                log.error("keys: %s; the previous API keys stay valid", error)
        return self._keys

    def _read(self) -> Sequence[str]:
        lines = [line.strip() for line in read_lines(self.path)]
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise UserError(
                f"keys={self.path}: the file contains no API keys; write one API key per line"
            )
        return keys


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Returns the inode, modification time and size of a file; None if it is not found."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(eq=False)
class Pace:
    """Limiter of the number of requests of each caller within a minute.

    per_minute: maximum number of requests of a caller within a minute; 0 disables the limit
    """

    per_minute: int
    _times: dict[str, deque[float]] = field(default_factory=dict, init=False)

    def take(self, caller: str) -> None:
        """Counts a request by a caller. Raises Refused if the caller exceeds the limit."""
        if not self.per_minute:
            return
        now = time.monotonic()
        if len(self._times) > MAX_CALLERS:
            self._times = {
                who: times for who, times in self._times.items() if now - times[-1] < MINUTE
            }
        times = self._times.setdefault(caller, deque(maxlen=self.per_minute))
        if len(times) == self.per_minute and now - times[0] < MINUTE:
            wait = math.ceil(MINUTE - (now - times[0]))
            message = f"more than {self.per_minute:,} requests in a minute"
            raise Refused(429, message, {"Retry-After": str(wait)})
        times.append(now)
