"""The HTTP server: limits of the protocol with a simulated clock, and clients over real sockets."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from uvicorn.server import ServerState

from elfnet.errors import RequestError, WorkError
from elfnet.inference.engine import Answers
from elfnet.serve import server
from elfnet.serve.server import (
    MAX_HEADER_BYTES,
    MAX_JOINED_BYTES,
    MAX_PIPELINED,
    JoinedWrites,
    LimitedHttpProtocol,
    ServerConfig,
    bind_socket,
)
from elfnet.serve.settings import ServeSettings

HEADER = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """The part of an event loop that the protocol uses; `advance` lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def call_soon(self, call: Callable[[], None]) -> Timer:
        return self.call_later(0.0, call)

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
def connection() -> tuple[LimitedHttpProtocol, Transport, Clock]:
    """A new connection, with a header timeout of 20 seconds."""
    clock, transport = Clock(), Transport()
    config = ServerConfig(lambda: None, settings=ServeSettings(), log_config=None)
    protocol = LimitedHttpProtocol(config, ServerState(), {}, clock)  # type: ignore[arg-type]
    protocol.connection_made(transport)  # type: ignore[arg-type]
    return protocol, transport, clock


Connection = tuple[LimitedHttpProtocol, Transport, Clock]


def test_what_is_written_together_is_sent_together() -> None:
    clock, sent = Clock(), list[bytes]()
    transport = Transport()
    transport.write = lambda data: sent.append(bytes(data))  # type: ignore[method-assign]
    joined = JoinedWrites(transport, clock)  # type: ignore[arg-type]
    joined.write(b"header")
    joined.write(b"body")
    assert sent == []
    clock.advance(0.0)
    assert sent == [b"headerbody"]
    large = bytes(MAX_JOINED_BYTES)
    joined.write(b"header")
    joined.write(large)
    assert sent[1:] == [b"header" + large]
    joined.write(b"last")
    joined.close()
    assert (sent[2:], transport.closed) == ([b"last"], True)
    clock.advance(0.0)
    assert len(sent) == 3


def test_a_silent_connection_is_closed_without_a_response(connection: Connection) -> None:
    _, transport, clock = connection
    clock.advance(19.9)
    assert not transport.is_closing()
    clock.advance(0.1)
    assert (transport.closed, transport.written) == (True, b"")


def test_more_bytes_do_not_restart_the_timeout(connection: Connection) -> None:
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


def test_a_request_in_progress_has_no_header_timeout(connection: Connection) -> None:
    protocol, transport, clock = connection
    protocol.data_received(HEADER[:10])
    clock.advance(19.0)
    protocol.data_received(HEADER[10:])
    clock.advance(3600.0)
    assert not transport.is_closing()


def test_the_timeout_starts_again_after_a_response(connection: Connection) -> None:
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


def test_a_long_header_is_refused(connection: Connection) -> None:
    protocol, transport, _ = connection
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    for _ in range(MAX_HEADER_BYTES // 1024):
        protocol.data_received(bytes([65]) * 1024)
    assert not transport.is_closing()
    protocol.data_received(b"A")
    assert transport.is_closing()
    assert transport.written.startswith(b"HTTP/1.1 431 ")
    assert transport.written.endswith(b'{"error":"the header has more than 65,536 bytes; send less"}')


CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_long_body_does_not_count_as_header(connection: Connection) -> None:
    """Chunks of one byte have more overhead than data."""
    protocol, transport, _ = connection
    protocol.data_received(CHUNKED)
    for _ in range(50):
        protocol.data_received(b"1\r\nA\r\n" * 1000)
        protocol.data_received(b"2710\r\n" + bytes(10_000) + b"\r\n")
    assert not transport.is_closing()


def test_a_malformed_chunk_receives_400(connection: Connection) -> None:
    protocol, transport, _ = connection
    protocol.data_received(CHUNKED)
    protocol.data_received(b"1\r\nA\r\nnot a size\r\n")
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert transport.written.endswith(b'{"error":"the body of the request is not valid HTTP/1.1"}')
    assert transport.closed
    # What the application sends now is not written into the response.
    assert protocol.cycle.disconnected


@pytest.mark.parametrize("earlier", ["pipelined", "responding"])
def test_a_malformed_chunk_does_not_interrupt_a_response(connection: Connection, earlier: str) -> None:
    protocol, transport, _ = connection
    protocol.data_received(HEADER + CHUNKED if earlier == "pipelined" else CHUNKED)
    protocol.cycle.response_started = earlier == "responding"
    protocol.data_received(b"not a size\r\n")
    assert (transport.closed, transport.written) == (True, b"")


def test_trailers_are_limited(connection: Connection) -> None:
    protocol, transport, _ = connection
    protocol.data_received(CHUNKED)
    protocol.data_received(b"1\r\nA\r\n0\r\n")
    for number in range(100):
        protocol.data_received(b"X-%d: " % number + b"A" * 1000 + b"\r\n")
        if transport.is_closing():
            break
    assert number in range(60, 70)
    assert transport.written == b""


def test_a_bad_second_request_does_not_interrupt_the_response(connection: Connection) -> None:
    protocol, transport, _ = connection
    protocol.data_received(HEADER)
    protocol.data_received(b"GET / HTTP/1.1\r\nX: ")
    protocol.data_received(b"A" * (MAX_HEADER_BYTES + 1))
    assert (transport.closed, transport.written) == (True, b"")


def test_pipelined_requests_are_limited(connection: Connection) -> None:
    protocol, transport, _ = connection
    protocol.data_received(HEADER * (MAX_PIPELINED + 1))
    assert (len(protocol.pipeline), transport.closed) == (MAX_PIPELINED, False)
    protocol.data_received(HEADER * 1000)
    # Nothing is written into the response of the first request.
    assert (len(protocol.pipeline), transport.closed, transport.written) == (MAX_PIPELINED, True, b"")


def exchange(port: int, request: bytes) -> tuple[bytes, Any]:
    """Send bytes on a connection of their own; returns header and JSON body of the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as file:
        connection.sendall(request)
        header, _, body = file.read().partition(b"\r\n\r\n")
    return header, json.loads(body)


def test_the_host_is_required_in_http_1_1(live: Callable[..., Any]) -> None:
    port = live().port
    header, body = exchange(port, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 400 ")
    assert body == {"error": "the request has no Host header; HTTP/1.1 requires one"}
    header, body = exchange(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 400 ")
    assert body == {"error": "the request has several Host headers; send one"}
    header, body = exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert (header[:13], body) == (b"HTTP/1.1 200 ", {"status": "ok"})


def test_malformed_chunks_receive_400(live: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    running = live()
    request = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for chunk in (b"zz\r\n", b"-1\r\n", b"5\r\nabcdefg\r\n", b"FFFFFFFFFFFFFFFFF\r\n"):
        header, body = exchange(running.port, request + chunk)
        assert header.startswith(b"HTTP/1.1 400 "), chunk
        assert body == {"error": "the body of the request is not valid HTTP/1.1"}
    assert {record.getMessage() for record in caplog.records} <= {"Invalid HTTP request received."}
    running.stop()
    running.join()
    assert running.service.admission.requests == 0


def test_connections_are_limited(live: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
    running = live()
    address = ("127.0.0.1", running.port)
    with closing(http.client.HTTPConnection(*address, timeout=30)) as first:
        first.request("GET", "/healthz")
        assert first.getresponse().read() == b'{"status":"ok"}'
        header, body = exchange(running.port, HEADER)
        assert header.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in header
        assert body == {"error": "1 connections are open; try again later"}


def test_another_host_is_refused(live: Callable[..., Any]) -> None:
    request = b"GET /v1/model HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    header, body = exchange(live().port, request)
    assert header.startswith(b"HTTP/1.1 421 ")
    assert body["error"].startswith("host 'evil.example' is not allowed")


def test_a_request_that_is_not_http_receives_400(live: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    header, body = exchange(live().port, b"\x16\x03\x01 hello\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in header
    assert body == {"error": "the request is not valid HTTP/1.1"}
    assert len(caplog.messages) <= 1


def test_a_protocol_upgrade_is_ignored(live: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", live().port, timeout=30)) as client:
        for _ in range(2):
            client.request("GET", "/healthz", headers={"Connection": "Upgrade", "Upgrade": "websocket"})
            assert client.getresponse().read() == b'{"status":"ok"}'
    assert caplog.messages == []


def test_idle_and_slow_connections_are_closed(live: Callable[..., Any]) -> None:
    running = live(read_seconds=0.3)
    address = ("127.0.0.1", running.port)
    with socket.create_connection(address, timeout=30) as idle:
        assert idle.recv(100) == b""
    with socket.create_connection(address, timeout=30) as slow:
        slow.sendall(HEADER[:38])
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
    with closing(http.client.HTTPConnection(*address, timeout=30)) as kept:
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() == b'{"status":"ok"}'
        kept.sock.sendall(HEADER[:38])
        assert kept.sock.recv(100).startswith(b"HTTP/1.1 408 ")


AsJson = Callable[..., dict[str, Any]]


def post(port: int, body: dict[str, Any]) -> tuple[int, dict[str, str], dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v1/predict", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())
    finally:
        connection.close()


HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


def test_clients_that_are_slow_or_disconnect(
    live: Callable[..., Any], digit_files: list[bytes], as_json: AsJson
) -> None:
    running = live(read_seconds=1.0)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as slow:
        slow.sendall(HEAD + b"{")
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as gone:
        gone.sendall(HEAD + b"{")
    assert post(running.port, as_json(digit_files[:1]))[0] == 200
    assert running.service.admission.requests == 0


def test_under_overload_every_response_is_200_or_503(
    live: Callable[..., Any], digit_files: list[bytes], as_json: AsJson, model: Any
) -> None:
    """While the engine waits, the queue fills up: further requests are refused at once, the others are computed."""
    gate, real = threading.Event(), model.engine
    calls: list[str] = []

    class Held:
        family, backend = real.family, real.backend
        operating_point = "full"

        def warm_up(self, images: NDArray[np.float32]) -> None:
            self(images, operating_point="full")

        def __call__(self, images: NDArray[np.float32], *, operating_point: str) -> Answers:
            if calls:
                assert gate.wait(30)
            calls.append(operating_point)
            answers: Answers = real(images, operating_point=operating_point)
            return answers

    model.engine = Held()
    running = live(max_queue=8, max_batch=4, max_images=8, shed_by_budget=False)
    body = as_json(digit_files[:1])
    with ThreadPoolExecutor(30) as clients:
        calls_made = [clients.submit(post, running.port, body) for _ in range(30)]
        # At most 8 images wait and 4 are computed; the other requests are refused while the gate is closed.
        refused = 0
        while refused < 30 - 12:
            refused = sum(call.done() for call in calls_made)
        gate.set()
        answers = [call.result() for call in calls_made]
    assert {status for status, _, _ in answers} == {200, 503}
    for status, headers, content in answers:
        if status == 503:
            assert int(headers["retry-after"]) >= 1
            assert "of at most 8 images are waiting; try again later" in content["error"]
        else:
            assert content["answers"][0]["label"]
    assert post(running.port, body)[0] == 200


def test_shutdown_completes_the_requests_in_progress(
    live: Callable[..., Any], digit_files: list[bytes], as_json: AsJson, model: Any
) -> None:
    running = live()
    assert post(running.port, as_json(digit_files[:1]))[0] == 200
    inside, gate, real = threading.Event(), threading.Event(), type(model.preprocess).normalise

    def held(preprocess: Any, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        inside.set()
        assert gate.wait(30)
        made: NDArray[np.float32] = real(preprocess, pixels)
        return made

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as client:
        patch.setattr(type(model.preprocess), "normalise", held)
        calls_made = client.submit(post, running.port, as_json(digit_files[:1]))
        assert inside.wait(30)
        running.stop()
        gate.set()
        assert calls_made.result()[0] == 200
        running.join()


def test_a_bad_port_is_refused() -> None:
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(WorkError, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use"):
            bind_socket("127.0.0.1", port)
    with pytest.raises(RequestError, match="port 99999 is out of range; give 0 to 65535"):
        bind_socket("127.0.0.1", 99999)
