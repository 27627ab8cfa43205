"""Connections that do not finish a header: uvicorn alone keeps them for ever, until there is room for nobody else."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from elfnet.serve.envelope import HEADERS
from elfnet.serve.error_answers import error_answer


class HeaderDeadline(H11Protocol):
    """Closes a connection without a complete header; the clock runs whenever no request is being answered.

    It starts with the connection, and anew with the first bytes after an answer; more bytes do not set it back.
    Between an answer and those bytes uvicorn's own `timeout_keep_alive` counts.
    """

    header_seconds = 20.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        answering = self.cycle and not self.cycle.response_complete
        if answering or self.transport.is_closing():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self._close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        # Who has begun a request is told why; who has said nothing expects no answer.
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            message = f"the header did not arrive within {self.header_seconds:g} s; send it faster"
            answer = error_answer(408, message, {"Connection": "close"})
            headers = [*answer.raw_headers, *HEADERS.items()]
            for event in (
                h11.Response(status_code=408, reason=b"Request Timeout", headers=headers),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
