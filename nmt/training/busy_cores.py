"""Reduction of the number of threads while other processes use the processor's cores.

The threads of an operation busy-wait for one another. If another process occupies a core, all
threads wait for the thread on this core at every operation. Training with two threads may then be
many times slower than with one.
"""

import logging
import time

import torch

from nmt.training.callback import Callback, Update

log = logging.getLogger(__name__)
SECONDS = 0.15
"""Seconds that the speed measurement takes for each number of threads."""
PAUSE = 30.0
"""Minimum number of seconds between two measurements of the computing speed."""
SLOW = 0.7
"""Fraction of the highest training speed below which the computing speed is measured again."""
GAIN = 1.1
"""Factor by which fewer threads must be faster than all threads for the number of threads to be
reduced. On an idle machine, fewer threads have about 0.6 times the speed of all threads."""


class FewerThreads(Callback):
    """Callback that measures the computing speed with one thread, with half of the threads and with
    all threads, and sets the fastest number.

    The callback measures at the start of training and after each validation. While training is slow
    or does not use all threads, the callback also measures after a progress report, at most once
    every `PAUSE` seconds.
    """

    every_rank = True

    def __init__(self) -> None:
        self._most = torch.get_num_threads()
        self._fastest = 0.0  # tokens per second with all threads
        self._choose()

    def on_update(self, update: Update) -> None:
        is_reduced = torch.get_num_threads() < self._most
        if not is_reduced:
            self._fastest = max(self._fastest, update.speed)
        is_slow = update.speed < SLOW * self._fastest
        if (is_reduced or is_slow) and time.monotonic() > self._chosen_at + PAUSE:
            self._choose()

    def on_validation(self, *unused: object) -> None:
        self._choose()

    def _choose(self) -> None:
        self._chosen_at = time.monotonic()
        if self._most == 1:
            return
        before = torch.get_num_threads()
        numbers = {1, max(1, self._most // 2), self._most}
        speeds = {threads: operations_per_second(threads) for threads in numbers}
        best = max(speeds, key=speeds.__getitem__)
        chosen = best if speeds[best] > GAIN * speeds[self._most] else self._most
        torch.set_num_threads(chosen)
        if chosen < self._most and chosen != before:
            log.info(
                "other processes are using the CPU cores: training now uses %s of %s threads, "
                "which is %.1f times as fast; to keep %s threads, set threads=%s",
                chosen,
                self._most,
                speeds[best] / speeds[self._most],
                self._most,
                self._most,
            )
        elif chosen > before:
            log.info(
                "more CPU cores are free: training now uses %s threads instead of %s",
                chosen,
                before,
            )


def operations_per_second(threads: int) -> float:
    """Measures the number of operations per second with a given number of threads. Each operation
    is an element-wise function of a matrix with the size of a recurrent step."""
    torch.set_num_threads(threads)
    x = torch.zeros(80, 1536)
    torch.sigmoid(x)  # warm-up: starts the threads
    began = time.perf_counter()
    count = 0
    while time.perf_counter() < began + SECONDS:
        torch.sigmoid(x)
        count += 1
    return count / (time.perf_counter() - began)
