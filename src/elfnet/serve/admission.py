"""How many requests, and bytes of them, are held at a time."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from elfnet.serve.errors import BodyTooLarge, Refusal, overloaded, too_large


class Place:
    """One request that was let in; counts its bytes."""

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self.held_bytes = 0

    def hold(self, size: int) -> None:
        """Count `size` bytes more; 503 if all requests together would hold too many."""
        self._admission.hold(size)
        self.held_bytes += size


class Admission:
    """Used by the event loop alone, so that plain counters are enough.

    Args:
        max_requests: held at a time.
        max_bytes: of their bodies together.
        retry_seconds: when to come back, asked at each refusal.
    """

    def __init__(self, max_requests: int, max_bytes: int, retry_seconds: Callable[[], int]) -> None:
        self._max_requests, self._max_bytes, self._retry_seconds = max_requests, max_bytes, retry_seconds
        self.requests = 0
        self.held_bytes = 0

    @contextmanager
    def admit(self) -> Iterator[Place]:
        """A place among those who are served, or 503 at once, before anything of the body is read."""
        if self.requests >= self._max_requests:
            raise overloaded(f"{self.requests} requests are being served already; try again", self._retry_seconds())
        self.requests += 1
        place = Place(self)
        try:
            yield place
        finally:
            self.requests -= 1
            self.held_bytes -= place.held_bytes

    def hold(self, size: int) -> None:
        if self.held_bytes + size > self._max_bytes:
            raise overloaded("too many bytes are being received already; try again", self._retry_seconds())
        self.held_bytes += size


async def read_body(request: Request, place: Place, *, most_bytes: int, seconds: float) -> bytes:
    """The whole body; 413 if it is too large, 408 if it takes too long, 503 if there is no room for it."""
    _judge_announced(request.headers.get("content-length"), most_bytes)
    try:
        async with asyncio.timeout(seconds):
            return await _read(request, place, most_bytes)
    except TimeoutError:
        raise Refusal(
            408, f"the request did not arrive within {seconds:g} s; send it faster", Connection="close"
        ) from None
    except ClientDisconnect:
        # Nobody will read this; it only ends the work.
        raise Refusal(400, "the client hung up", Connection="close") from None


def _judge_announced(length: str | None, most_bytes: int) -> None:
    if length is not None and length.isdecimal() and int(length) > most_bytes:
        raise BodyTooLarge(f"the request has {int(length):,} bytes, the limit is {most_bytes:,}; send less")


async def _read(request: Request, place: Place, most_bytes: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        if len(body) + len(chunk) > most_bytes:
            # Whoever has sent everything is not waited for.
            kind = BodyTooLarge if more else too_large
            raise kind(f"the request has more than {most_bytes:,} bytes; send less")
        place.hold(len(chunk))
        body += chunk
    return bytes(body)
