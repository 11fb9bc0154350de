"""python -m nmt.sweep.child PROCESS@HOST MODULE [ARGUMENT …]

Runs a module that is stopped, as by SIGTERM, once the process that wanted it has ended, however that process ended: nothing
goes on training behind the back of a sweep that was killed.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import threading
import time

from nmt.sweep.run_status import alive

MERCY = 60
"""Seconds to save everything."""


def _watch(process: int, parent: int) -> None:
    while alive(process) and os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(MERCY)
    os._exit(1)


def main() -> None:
    whose, module, *arguments = sys.argv[1:]
    process, _, host = whose.partition("@")
    if host == socket.gethostname():
        threading.Thread(target=_watch, args=(int(process), os.getppid()), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
