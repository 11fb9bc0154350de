"""python -m nmt.sweep.child PROCESS@HOST MODULE [ARGUMENT …]

Runs a module and stops it by SIGTERM when the sweep's process ends, so that no training survives a
killed sweep.
"""

import os
import runpy
import signal
import socket
import sys
import threading
import time

from nmt.foundation.processes import is_running

GRACE_SECONDS = 60
"""Seconds that the training process has after SIGTERM to save its state before it is killed."""


def _watch(sweeper: int, parent: int) -> None:
    # A changed parent means that the launcher's process has ended.
    while is_running(sweeper) and os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def main() -> None:
    process, host = sys.argv[1].split("@", 1)
    if host == socket.gethostname():
        threading.Thread(target=_watch, args=(int(process), os.getppid()), daemon=True).start()
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
