"""Runs uvicorn as HTTP server, with a listening socket and signal handlers of its own."""

import logging
import signal
import socket

import uvicorn
from starlette.types import ASGIApp

from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)
BACKLOG = 128
"""Maximum number of connections that wait to be accepted."""
SHUTDOWN_SECONDS = 60
"""Seconds that the server has to answer open requests after SIGTERM or Ctrl-C."""


def run_server(app: ASGIApp, host: str, port: int) -> None:
    """Serves HTTP requests until SIGTERM or Ctrl-C.

    app: ASGI application that answers the requests
    host: IPv4 or IPv6 address to listen on
    port: port number; 0 chooses a free port

    Raises UserError if the address cannot be used.
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
    listener.listen(BACKLOG)
    shown_host = f"[{host}]" if ":" in host else host
    log.info("listening on http://%s:%s", shown_host, listener.getsockname()[1])
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    # uvicorn raises the signal again after the last response. Ignoring it gives exit status 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listener])
