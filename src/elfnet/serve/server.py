"""The HTTP server: uvicorn with limits on request headers, pipelining and connections."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import uvicorn
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from elfnet.errors import RequestError, WorkError
from elfnet.serve.app import create_app
from elfnet.serve.errors import error_response
from elfnet.serve.middleware import SECURITY_HEADERS
from elfnet.serve.service import Service
from elfnet.serve.settings import ServeSettings

BACKLOG = 2048
MAX_CONNECTIONS = 4096
SHUTDOWN_SECONDS = 30
HEALTHCHECK_SECONDS = 30
"""A worker that does not react for this long is replaced."""

MAX_HEADER_BYTES = 65_536
CHUNK_OVERHEAD_BYTES = 64
"""Bytes allowed per chunk of a body besides its data: the chunk size, two line breaks, a short extension."""

MAX_JOINED_BYTES = 65_536
"""Beyond it, what was written is sent at once, so that the transport notices a client that reads too slowly."""

MAX_PIPELINED = 32
"""Requests that may wait on one connection while an earlier one is in progress; browsers do not pipeline."""

_CLOSE = {"Connection": "close"}


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address; with port 0 the system chooses a free port.

    Raises:
        RequestError: if the port is out of range.
        WorkError: if the address cannot be bound.
    """
    if not 0 <= port <= 65535:
        raise RequestError(f"port {port} is out of range; give 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise WorkError(f"cannot listen on {host}:{port}: {error.strerror or error}; give another --port") from error
    return bound


def serve(service: Service, bound: socket.socket, *, log_level: str = "warning") -> None:
    """Serve until SIGINT or SIGTERM, then complete the requests in progress.

    Args:
        bound: from `bind_socket`; closed at the end.
        log_level: of uvicorn; "info" logs one line per request.
    """
    with closing(bound):
        build_server(service, log_level=log_level).run(sockets=[bound])


def build_server(service: Service, *, log_level: str = "warning") -> uvicorn.Server:
    """Return a uvicorn server for the service; its method `run` takes the sockets."""
    return uvicorn.Server(ServerConfig(create_app(service), settings=service.settings, log_level=log_level))


class ServerConfig(uvicorn.Config):
    """The configuration of uvicorn for a service.

    Args:
        app: the ASGI application, or a function that returns it (`factory`).
        settings: the limit on the time for a header is taken from here.
        options: of `uvicorn.Config`.
    """

    def __init__(
        self, app: Callable[..., Any], *, settings: ServeSettings, log_level: str = "warning", **options: Any
    ) -> None:
        super().__init__(
            app,
            http=LimitedHttpProtocol,
            log_level=log_level,
            access_log=log_level in ("info", "debug"),
            backlog=BACKLOG,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            timeout_worker_healthcheck=HEALTHCHECK_SECONDS,
            server_header=False,
            lifespan="on",
            **options,
        )
        self.header_timeout = settings.read_seconds


async def _refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of connections beyond the limit."""
    message = f"{MAX_CONNECTIONS:,} connections are open; try again later"
    await error_response(503, message, {"Retry-After": "1", **_CLOSE})(scope, receive, send)


class JoinedWrites:
    """A transport that sends together what is written together, otherwise the transport that it wraps.

    uvicorn writes the header and the body of a response one by one, and each write is a call of the system that wakes
    the client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written = bytearray()

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written += data
        if len(self._written) > MAX_JOINED_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._written:
            data, self._written = self._written, bytearray()
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on the time and size of request headers.

    uvicorn alone waits for a header without limit and keeps all of it.

    The timeout runs while no request is in progress. It starts with the connection, and again with the first bytes
    after a response; further bytes do not restart it. Between a response and these bytes uvicorn's
    `timeout_keep_alive` applies.

    All bytes count as header except data and overhead of a body, so that trailers after a chunked body are limited
    too. The bytes that arrive together with the start of a request do not count; the event loop limits their number.
    """

    header_timeout = 20.0
    _timer: asyncio.TimerHandle | None = None
    _in_header = False
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        assert isinstance(self.config, ServerConfig)
        self.header_timeout = self.config.header_timeout
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(431, f"the header has more than {MAX_HEADER_BYTES:,} bytes; send less")
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_header, self._header_bytes = True, 0

    def on_headers_complete(self) -> None:
        # A single read can contain thousands of requests, and uvicorn keeps an object for each.
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError(f"more than {MAX_PIPELINED} pipelined requests")
        # uvicorn's own limit responds with text instead of JSON.
        self.app = self.config.loaded_app if len(self.connections) <= MAX_CONNECTIONS else _refuse_connection
        super().on_headers_complete()
        self._in_header = False

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._header_bytes -= len(body)

    def on_chunk_header(self) -> None:
        self._header_bytes -= CHUNK_OVERHEAD_BYTES

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (replaced by an error response like all others)
        if not self._in_progress:
            self._write(error_response(400, "the request is not valid HTTP/1.1", _CLOSE))
        elif self.cycle.more_body and not self.cycle.response_started and not self.pipeline:
            # The body of the only request in progress is malformed. This is its response; its task can only end.
            self._write(error_response(400, "the body of the request is not valid HTTP/1.1", _CLOSE))
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore a request to upgrade the protocol, without a line in the log for each."""

    @property
    def _in_progress(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _update_timer(self) -> None:
        if self._in_progress or self.transport.is_closing():
            self._cancel_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.header_timeout, self._on_timeout)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        self._refuse(408, f"the header did not arrive within {self.header_timeout:g} s; send it faster")

    def _refuse(self, status: int, message: str) -> None:
        # Only a client that has started a request and gets no other response expects this one.
        if self._in_header and not self._in_progress and not self.transport.is_closing():
            self._write(error_response(status, message, _CLOSE))
        self.transport.close()

    def _write(self, response: JSONResponse) -> None:
        lines = [b"%b: %b\r\n" % header for header in (*response.raw_headers, *SECURITY_HEADERS.items())]
        self.transport.write(b"".join((STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body))))
