"""Who does not finish a header is not waited for: with a clock of our own, and once over a real socket."""

import http.client
import socket
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from elfnet.serve.header_deadline import HeaderDeadline

HEADER = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """The part of an event loop that the protocol uses; time passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def create_task(self, work: Coroutine[Any, Any, None]) -> Any:
        work.close()
        return type("Task", (), {"add_done_callback": lambda _self, _call: None})()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.at <= self.now and not timer.cancelled]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            timer.call()


class Transport:
    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, _name: str) -> None:
        return None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@pytest.fixture
def connection() -> tuple[HeaderDeadline, Transport, Clock]:
    """A connection that was just made; it may take 20 seconds."""
    clock, transport = Clock(), Transport()
    config = uvicorn.Config(lambda: None, log_config=None)
    protocol = HeaderDeadline(config, ServerState(), {}, clock)  # type: ignore[arg-type]
    protocol.connection_made(transport)  # type: ignore[arg-type]
    return protocol, transport, clock


Connection = tuple[HeaderDeadline, Transport, Clock]


def test_silence_is_closed_without_a_word(connection: Connection) -> None:
    _, transport, clock = connection
    clock.advance(19.9)
    assert not transport.is_closing()
    clock.advance(0.1)
    assert (transport.closed, transport.written) == (True, b"")


def test_more_bytes_do_not_set_the_clock_back(connection: Connection) -> None:
    protocol, transport, clock = connection
    for byte in HEADER[:19]:
        clock.advance(1.0)
        protocol.data_received(bytes([byte]))
    assert not transport.is_closing()
    clock.advance(1.0)
    assert transport.is_closing()
    assert transport.written.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert transport.written.endswith(b'{"error":"the header did not arrive within 20 s; send it faster"}')
    assert b"x-content-type-options: nosniff" in transport.written


def test_a_request_that_is_being_answered_is_left_alone(connection: Connection) -> None:
    protocol, transport, clock = connection
    protocol.data_received(HEADER[:10])
    clock.advance(19.0)
    protocol.data_received(HEADER[10:])
    clock.advance(3600.0)
    assert not transport.is_closing()


def test_the_clock_starts_anew_after_an_answer(connection: Connection) -> None:
    protocol, transport, clock = connection
    protocol.data_received(HEADER)
    clock.advance(100.0)
    protocol.cycle.response_complete = True
    protocol.data_received(b"GET /")
    clock.advance(19.9)
    assert not transport.is_closing()
    clock.advance(0.1)
    assert transport.is_closing()


def test_a_lost_connection_leaves_no_timer(connection: Connection) -> None:
    protocol, _, clock = connection
    protocol.connection_lost(None)
    assert all(timer.cancelled for timer in clock.timers)


def test_the_service_closes_what_is_idle_or_unfinished(live: Callable[..., Any]) -> None:
    running = live(read_seconds=0.3)
    address = ("127.0.0.1", running.port)
    with socket.create_connection(address, timeout=30) as idle:
        assert idle.recv(100) == b""
    with socket.create_connection(address, timeout=30) as slow:
        slow.sendall(HEADER[:30])
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
    with closing(http.client.HTTPConnection(*address, timeout=30)) as kept:
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() == b'{"status":"ok"}'
        kept.sock.sendall(HEADER[:30])
        assert kept.sock.recv(100).startswith(b"HTTP/1.1 408 ")
