"""Parses durations such as 90s, 30m or 2h."""

import re

DURATION = re.compile(r"(\d+(?:\.\d+)?) *(s|m|min|h)?")
"""Regular expression for a number and a unit; a number without a unit is in minutes."""
SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 60.0}
"""Seconds per unit of time."""


def seconds_of(key: str, duration: str | float) -> float:
    """Returns a duration in seconds. Raises ValueError if the duration is invalid or 0.

    key: configuration key, for the message of the exception
    duration: number of minutes, or text with a unit, such as 90s, 30m or 2h
    """
    match = DURATION.fullmatch(str(duration).strip())
    seconds = float(match[1]) * SECONDS[match[2]] if match else 0.0
    if not seconds:
        raise ValueError(
            f"{key}={duration}: must be a number above 0 with one unit, such as 90s, 30m or 2h"
        )
    return seconds
