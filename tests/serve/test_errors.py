"""Error responses: draining the body of a client that sends too much."""

import asyncio
import http.client
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from starlette.types import Message

from elfnet.serve import errors
from elfnet.serve.errors import drain_body


def endless() -> Iterator[Message]:
    while True:
        yield {"type": "http.request", "body": bytes(1000), "more_body": True}


def drained(messages: Iterable[Message], *, max_bytes: int = 1_000_000, timeout: float = 30.0) -> int:
    """Count the messages that are received; after the last one the client sends nothing, and keeps the connection."""
    taken = 0
    left = iter(messages)

    async def receive() -> Message:
        nonlocal taken
        for message in left:
            taken += 1
            return message
        await asyncio.Event().wait()
        raise AssertionError

    asyncio.run(drain_body(receive, max_bytes=max_bytes, timeout=timeout))
    return taken


def test_a_body_is_drained_to_its_end_or_to_a_limit() -> None:
    part: Message = {"type": "http.request", "body": b"abc", "more_body": True}
    last: Message = {"type": "http.request", "body": b"abc"}
    assert drained([part, part, last, part]) == 3
    assert drained([part, {"type": "http.disconnect"}, part]) == 2
    assert drained(endless(), max_bytes=10_000) == 10
    assert drained([part], timeout=0.01) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_too_much_receives_413(live: Callable[..., Any], chunked: bool) -> None:
    running = live(max_body_bytes=1_000_000)
    pieces = [bytes(1_000_000)] * 20
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    body, length = (iter(pieces), {}) if chunked else (b"".join(pieces), {"content-length": "20000000"})
    headers = {"content-type": "application/json", **length}
    connection.request("POST", "/v1/predict", body, headers, encode_chunked=chunked)
    response = connection.getresponse()
    assert response.status == 413
    assert response.getheader("connection") == "close"
    assert "1,000,000" in json.loads(response.read())["error"]
    connection.close()


def test_the_response_is_sent_before_the_body_is_drained(
    live: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with `Expect: 100-continue` sends no body before it has a response."""
    monkeypatch.setattr(errors, "DRAIN_SECONDS", 3600.0)
    running = live(max_body_bytes=1000)
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.putrequest("POST", "/v1/predict")
    for name, value in (("content-length", "5000"), ("expect", "100-continue")):
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, "5,000" in json.loads(response.read())["error"]) == (413, True)
    connection.close()
