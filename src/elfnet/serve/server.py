"""Headers that do not end, in time, in size or in number: uvicorn alone waits for ever, and keeps all of them."""

import asyncio
import socket
from contextlib import closing

import uvicorn
from fastapi.responses import JSONResponse
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from elfnet.errors import RequestError, WorkError
from elfnet.serve.app import create_app
from elfnet.serve.errors import error_answer
from elfnet.serve.middleware import HEADERS
from elfnet.serve.service import Service

MOST_HEADER_BYTES = 65_536
CHUNK_FRAME_BYTES = 64
"""What the frame of one chunk of a body may take: its length, two line ends, a short extension."""

MOST_PIPELINED = 32
"""Requests that may be sent on one connection before the first is answered; browsers send one."""


class HeaderLimits(HttpToolsProtocol):
    """Closes a connection whose header takes too long or grows too large.

    The clock runs whenever no request is being answered: it starts with the connection, and anew with the first bytes
    after an answer; more bytes do not set it back. Between an answer and those bytes uvicorn's own
    `timeout_keep_alive` counts.

    What is neither body nor the frame of a chunk counts as header, so that fields after a body are bounded as well. Of
    what came in one piece with the first byte nothing counts; the event loop bounds such pieces.

    Requests that are sent before the ones in front of them are answered wait, up to `MOST_PIPELINED`.
    """

    header_seconds = 20.0
    _deadline: asyncio.TimerHandle | None = None
    _begun = False
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > MOST_HEADER_BYTES:
            self._refuse(431, f"the header has more than {MOST_HEADER_BYTES:,} bytes; send less")
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun, self._header_bytes = True, 0

    def on_headers_complete(self) -> None:
        # One piece of what is received can hold ten thousand requests, for each of which uvicorn keeps an object.
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError(f"more than {MOST_PIPELINED} requests wait for their answers on one connection")
        super().on_headers_complete()
        self._begun = False

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._header_bytes -= len(body)

    def on_chunk_header(self) -> None:
        self._header_bytes -= CHUNK_FRAME_BYTES

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (one line of ours, like every refusal)
        if not self._answering:
            self._write(error_answer(400, "this is not HTTP/1.1; send a request line and a header", CLOSE))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """The request is answered as if it had not asked; a line in the log for each would only fill it."""

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        if self._answering or self.transport.is_closing():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self._close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        self._refuse(408, f"the header did not arrive within {self.header_seconds:g} s; send it faster")

    def _refuse(self, status: int, message: str) -> None:
        # Who has begun a request is told why; who has said nothing, or is being answered, expects no other answer.
        if self._begun and not self._answering and not self.transport.is_closing():
            self._write(error_answer(status, message, CLOSE))
        self.transport.close()

    def _write(self, answer: JSONResponse) -> None:
        lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *HEADERS.items())]
        self.transport.write(b"".join((STATUS_LINE[answer.status_code], *lines, b"\r\n", bytes(answer.body))))


CLOSE = {"Connection": "close"}


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
