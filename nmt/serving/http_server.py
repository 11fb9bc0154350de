"""Runs uvicorn as HTTP server, in one process or in several that share the listening socket."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
START_SECONDS = 120
"""Seconds within which a server process must import its packages and answer its supervisor."""
RETRY_SECONDS = 10
"""Seconds between two attempts to replace a server process whose replacement cannot start."""
CANNOT_LISTEN = 1
"""Exit status of a server process that ends by an exception, because another server listens on the
port since the supervisor has bound it."""


class Supervisor(Multiprocess):
    """Supervisor of server processes: starts processes, replaces processes that end, passes on
    SIGTERM.

    If a replacement cannot start, for example because of a damaged newer checkpoint, the other
    processes answer the requests meanwhile.
    """

    retry_at = 0.0
    has_failed = False

    def keep_subprocess_alive(self) -> None:
        if self.should_exit.is_set():
            return
        for number, process in enumerate(self.processes):
            # Without this second end of the pipe, waiting for the answer of a process that has been
            # killed ends at once instead of after START_SECONDS.
            process.child_conn.close()
            if process.is_alive(START_SECONDS):
                continue
            process.kill()
            process.join()
            if process.exitcode in (STARTUP_FAILURE, CANNOT_LISTEN):
                if not any(other.is_ready() for other in self.processes):
                    self.has_failed = True
                    self.should_exit.set()
                    return
                if time.monotonic() < self.retry_at:
                    continue
                self.retry_at = time.monotonic() + RETRY_SECONDS
                log.error("a server process cannot start; the other processes answer the requests")
            self.processes[number] = Process(self.config, self.sockets)
            self.processes[number].start()

    def terminate_all(self) -> None:
        # An open socket without a server process would accept connections and never answer them.
        for listener in self.sockets:
            listener.close()
        super().terminate_all()


def run_server(
    make_app: Callable[[], ASGIApp],
    host: str,
    port: int,
    *,
    workers: int = 1,
    proxies: Sequence[str] = (),
) -> None:
    """Serves HTTP requests until SIGTERM or Ctrl-C.

    make_app: function that returns the ASGI application; every process calls the function once
    host: IPv4 or IPv6 address to listen on
    port: port number; 0 chooses a free port
    workers: number of processes; with several, `make_app` must be picklable and must not raise
    proxies: addresses or networks of proxies whose forwarding headers are used

    Raises UserError if the address cannot be used. Exits with status 1 if a process cannot start.
    """
    config = uvicorn.Config(
        make_app,
        factory=True,
        workers=workers,
        backlog=128,  # maximum number of connections that wait to be accepted
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=60,  # seconds for answering open requests at the end
        timeout_worker_healthcheck=START_SECONDS,
        timeout_notify=10**9,  # callback_notify is called once, after the start
    )
    if workers == 1:
        config.load()  # a model that cannot be loaded is reported before the socket is bound
    listener = _bound(host, port)
    config.callback_notify = partial(_announce, host, listener.getsockname()[1], workers)
    if workers > 1:
        # Directory in which prometheus-client adds up the metrics of all processes.
        with tempfile.TemporaryDirectory(prefix="nmt-metrics-") as folder:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            supervisor = Supervisor(config, [listener])
            supervisor.run()
        if supervisor.has_failed:
            log.error("host=%s port=%s: the server processes cannot start", host, port)
            raise SystemExit(1)
        return
    # uvicorn raises the signal again after the last response. Ignoring it gives exit status 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listener])


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound to an address. uvicorn starts to listen on the socket when the
    application is ready.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"host={host} port={port}: {error.strerror or error}; choose another host or port"
        ) from error
    return listener


async def _announce(host: str, port: int, workers: int) -> None:
    """Logs the address of the server when it accepts connections."""
    process = f"process {os.getpid()} " if workers > 1 else ""
    shown_host = f"[{host}]" if ":" in host else host
    log.info("%slistening on http://%s:%s", process, shown_host, port)


@contextlib.contextmanager
def stopping(seconds: float, begin: Callable[[], None]) -> Iterator[None]:
    """Context manager that delays the shutdown of the server after SIGTERM.

    The server also stops, with the same delay, if its supervisor process has ended.

    seconds: seconds between SIGTERM and the closing of the listening socket
    begin: callback at SIGTERM, before the delay

    Has no effect outside the main thread, since only the main thread receives signals.
    """
    stop = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(stop):
        yield
        return
    loop = asyncio.get_running_loop()
    supervisor = multiprocessing.parent_process()

    def terminate() -> None:
        begin()
        loop.call_later(seconds, stop, signal.SIGTERM, None)
        if supervisor is not None:
            loop.remove_reader(supervisor.sentinel)

    loop.add_signal_handler(signal.SIGTERM, terminate)
    if supervisor is not None:
        # Without its supervisor, a process would serve on after the service is stopped.
        loop.add_reader(supervisor.sentinel, terminate)
    yield
    loop.remove_signal_handler(signal.SIGTERM)
