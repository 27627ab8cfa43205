"""A client who sends too much sees the refusal, not a broken connection."""

import asyncio
import http.client
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from starlette.types import Message

from elfnet.serve import errors as lingering_answer
from elfnet.serve.errors import drop_rest


def endless() -> Iterator[Message]:
    while True:
        yield {"type": "http.request", "body": bytes(1000), "more_body": True}


def dropped(messages: Iterable[Message], *, most_bytes: int = 1_000_000, seconds: float = 30.0) -> int:
    """How many messages are taken; when there are no more, nothing comes, as from a client who is silent."""
    taken = 0
    left = iter(messages)

    async def receive() -> Message:
        nonlocal taken
        for message in left:
            taken += 1
            return message
        await asyncio.Event().wait()
        raise AssertionError

    asyncio.run(drop_rest(receive, most_bytes=most_bytes, seconds=seconds))
    return taken


def test_the_rest_is_read_to_its_end_or_to_a_bound() -> None:
    part: Message = {"type": "http.request", "body": b"abc", "more_body": True}
    last: Message = {"type": "http.request", "body": b"abc"}
    assert dropped([part, part, last, part]) == 3
    assert dropped([part, {"type": "http.disconnect"}, part]) == 2
    assert dropped(endless(), most_bytes=10_000) == 10
    assert dropped([part], seconds=0.01) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_is_answered_with_413(live: Callable[..., Any], chunked: bool) -> None:
    running = live(max_body_bytes=1_000_000)
    pieces = [bytes(1_000_000)] * 20
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    body, length = (iter(pieces), {}) if chunked else (b"".join(pieces), {"content-length": "20000000"})
    headers = {"content-type": "application/json", **length}
    connection.request("POST", "/v1/predict", body, headers, encode_chunked=chunked)
    answer = connection.getresponse()
    assert answer.status == 413
    assert answer.getheader("connection") == "close"
    assert "1,000,000" in json.loads(answer.read())["error"]
    connection.close()


def test_the_answer_does_not_wait_for_the_rest(live: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks first whether the body is welcome, and sends nothing, is answered at once."""
    monkeypatch.setattr(lingering_answer, "DROP_SECONDS", 3600.0)
    running = live(max_body_bytes=1000)
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.putrequest("POST", "/v1/predict")
    for name, value in (("content-length", "5000"), ("expect", "100-continue")):
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, "5,000" in json.loads(answer.read())["error"]) == (413, True)
    connection.close()
