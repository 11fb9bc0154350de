"""Time budget of a training, converted to a number of updates at the measured speed."""

import logging
import re
from dataclasses import replace

from nmt.foundation.ranks import Ranks
from nmt.training.epoch_plan import EpochPlan

log = logging.getLogger(__name__)
PLAN_EVERY = 20
"""Maximum number of updates between two estimates of the number of updates in a time budget."""
DURATION = re.compile(r"(\d+(?:\.\d+)?) *(s|m|min|h)?")
"""Regular expression for a number and a unit; a number without a unit is in minutes."""
SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 60.0}
"""Seconds per unit of time."""


class TimeBudget:
    """Maximum time of a training with its validations.

    limit: value of `trainer.time_budget`: number of minutes, or text such as 90s, 30m or 2h
    ranks: processes (ranks) that train together
    """

    def __init__(self, limit: str | float, ranks: Ranks) -> None:
        self.limit = limit
        self.seconds = seconds_of(limit)
        self.ranks = ranks
        self.validation_seconds = 0.0
        """Duration of the last validation. The last update is followed by a validation, too."""
        self._is_logged = False

    def is_used_up(self, seconds: float) -> bool:
        """Returns whether no time is left for updates on any of the ranks.

        seconds: training time so far, in seconds
        """
        return self.ranks.any(self._seconds_left(seconds) <= 0)

    def fitted(self, plan: EpochPlan, update: int, seconds: float) -> EpochPlan:
        """Returns the plan of an epoch, shortened to the updates that fit into the time budget at
        the average speed so far. Logs the number of updates once.

        plan: plan of the current epoch
        update: number of updates so far, at least 1
        seconds: training time so far, in seconds
        """
        left = max(0.0, self._seconds_left(seconds))
        possible = self.ranks.of_first(update + int(left * update / seconds))
        if not self._is_logged and left == 0.0:
            log.warning(
                "time_budget=%s: no time is left for further updates after %.0f s of training; give "
                "more time, or set trainer.time_budget=null",
                self.limit,
                seconds,
            )
        elif not self._is_logged and possible < plan.total_updates:
            log.info(
                "time_budget=%s: about %s updates at the measured speed, instead of %s",
                self.limit,
                f"{possible:,}",
                f"{plan.total_updates:,}",
            )
        self._is_logged = True
        return replace(plan, max_updates=min(plan.total_updates, possible))

    def _seconds_left(self, seconds: float) -> float:
        return self.seconds - seconds - self.validation_seconds


def seconds_of(duration: str | float) -> float:
    """Returns a time budget in seconds. Raises ValueError if the duration is invalid or 0.

    duration: number of minutes, or text with a unit, such as 90s, 30m or 2h
    """
    match = DURATION.fullmatch(str(duration).strip())
    seconds = float(match[1]) * SECONDS[match[2]] if match else 0.0
    if not seconds:
        raise ValueError(
            f"time_budget={duration}: must be a number above 0 with one unit, such as 90s, 30m or "
            "2h"
        )
    return seconds
