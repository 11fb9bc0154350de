"""Fewer threads while other processes use the processor's cores.

The threads of an operation wait for one another, busily. If another process holds one of their
cores, all of them wait for it, at every operation. Two threads beside several busy processes may
train many times more slowly than one thread.
"""

import logging
import time

import torch

from nmt.training.callback import Callback

log = logging.getLogger(__name__)
SECONDS = 0.15
"""Seconds of the measurement with each number of threads."""
GAIN = 1.5
"""Smallest ratio of speeds at which fewer threads are used; on an idle machine it is below 1."""


class FewerThreads(Callback):
    """Callback that chooses the number of threads by a short measurement, now and after each
    validation."""

    every_rank = True

    def __init__(self) -> None:
        self._most = torch.get_num_threads()
        self._choose()

    def on_validation(self, *unused: object) -> None:
        self._choose()

    def _choose(self) -> None:
        numbers = {1, max(1, self._most // 2), self._most}
        speeds = {threads: operations_per_second(threads) for threads in numbers}
        best = max(speeds, key=speeds.__getitem__)
        chosen = best if speeds[best] > GAIN * speeds[self._most] else self._most
        torch.set_num_threads(chosen)
        if chosen != self._most:
            log.info(
                "other processes use the cores: training uses %s instead of %s threads until the "
                "next validation, which is %.1f times as fast; threads=%s disables this choice",
                chosen,
                self._most,
                speeds[best] / speeds[self._most],
                self._most,
            )


def operations_per_second(threads: int) -> float:
    """Operations per second of the size that a step of a recurrent layer has."""
    torch.set_num_threads(threads)
    x = torch.zeros(80, 1536)
    torch.sigmoid(x)  # starts the threads
    began = time.perf_counter()
    count = 0
    while time.perf_counter() < began + SECONDS:
        torch.sigmoid(x)
        count += 1
    return count / (time.perf_counter() - began)
