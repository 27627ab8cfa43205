"""The service under uvicorn, until it is told to stop."""

import socket
from contextlib import closing

import uvicorn

from elfnet.errors import RequestError, WorkError
from elfnet.serve.app import create_app
from elfnet.serve.header_limits import HeaderLimits
from elfnet.serve.service import Service

BACKLOG = 2048
DRAIN_SECONDS = 30
MOST_CONNECTIONS = 4096


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 lets the system choose."""
    if not 0 <= port <= 65535:
        raise RequestError(f"port {port} does not exist; give 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise WorkError(f"cannot listen on {host}:{port}: {error.strerror or error}; give another --port") from error
    return listening


def serve(service: Service, listening: socket.socket, *, log_level: str = "warning") -> None:
    """Answer until SIGINT or SIGTERM; then what was taken is finished."""
    with closing(listening):
        server_for(service, log_level=log_level).run(sockets=[listening])


def server_for(service: Service, *, log_level: str = "warning") -> uvicorn.Server:
    class Protocol(HeaderLimits):
        header_seconds = service.settings.read_seconds

    return uvicorn.Server(
        uvicorn.Config(
            create_app(service),
            http=Protocol,
            log_level=log_level,
            access_log=log_level in ("info", "debug"),
            backlog=BACKLOG,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            server_header=False,
            lifespan="on",
        )
    )
