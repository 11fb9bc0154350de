"""python -m nmt.sweep.child PROCESS@HOST MODULE [ARGUMENT …]

Runs a module until the process that started the sweep has ended, however it ended: no training
survives a killed sweep. It is then stopped as by SIGTERM.
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
"""Seconds between SIGTERM and the end of the process, in which a training is saved."""


def _watch(sweeper: int, parent: int) -> None:
    while is_running(sweeper) and os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def main() -> None:
    process, host = sys.argv[1].split("@", 1)
    module = sys.argv[2]
    if host == socket.gethostname():
        threading.Thread(target=_watch, args=(int(process), os.getppid()), daemon=True).start()
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
