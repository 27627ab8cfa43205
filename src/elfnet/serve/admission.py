"""Admission control: how many requests, bytes and pixels may be in progress, and reading a body within the limits."""

import asyncio
import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from elfnet.serve.errors import ApiError, BodyTooLargeError, overloaded, too_large

TRIM_PIXELS = 1_000_000
"""From this size on, the memory of an image is returned to the system at once."""


class Slot:
    """The share of the limits that one admitted request uses."""

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self.held_bytes = 0

    def reserve_bytes(self, size: int) -> None:
        """Reserve memory for `size` more bytes of the body, until the request ends.

        Raises:
            ApiError: 503 if the bodies of all requests would exceed the limit.
        """
        self._admission.reserve_bytes(size)
        self.held_bytes += size

    @contextmanager
    def reserve_pixels(self, pixels: int) -> Iterator[None]:
        """Reserve memory for images of `pixels` in all, while they wait for a thread and are decoded.

        Raises:
            ApiError: 503 if the images of all requests would exceed the limit.
        """
        self._admission.reserve_pixels(pixels)
        try:
            yield
        finally:
            self._admission.held_pixels -= pixels


class Admission:
    """Counts the requests in progress, the bytes of their bodies and the pixels of the images being decoded.

    Only the event loop uses it, so plain counters are enough.

    Args:
        max_requests: requests in progress at a time.
        max_bytes: bytes of their bodies together.
        max_pixels: pixels of their images together, as long as these are not decoded.
        retry_after: called for each refusal; returns the seconds that `Retry-After` tells the client.
    """

    def __init__(self, *, max_requests: int, max_bytes: int, max_pixels: int, retry_after: Callable[[], int]) -> None:
        self._max_requests, self._max_bytes, self._max_pixels = max_requests, max_bytes, max_pixels
        self._retry_after = retry_after
        self.requests = 0
        self.held_bytes = 0
        self.held_pixels = 0

    @contextmanager
    def admit(self) -> Iterator[Slot]:
        """Admit one request before its body is read; what it reserved is released at the end.

        Raises:
            ApiError: 503 if too many requests are in progress.
        """
        if self.requests >= self._max_requests:
            raise overloaded(f"{self.requests} requests are in progress; try again later", self._retry_after())
        self.requests += 1
        slot = Slot(self)
        try:
            yield slot
        finally:
            self.requests -= 1
            self.held_bytes -= slot.held_bytes

    def reserve_bytes(self, size: int) -> None:
        if self.held_bytes + size > self._max_bytes:
            raise overloaded(
                f"the requests in progress hold {self.held_bytes:,} of at most {self._max_bytes:,} bytes; "
                "try again later",
                self._retry_after(),
            )
        self.held_bytes += size

    def reserve_pixels(self, pixels: int) -> None:
        if self.held_pixels + pixels > self._max_pixels:
            raise overloaded(
                f"the requests in progress decode {self.held_pixels:,} of at most {self._max_pixels:,} pixels; "
                "try again later",
                self._retry_after(),
            )
        self.held_pixels += pixels


class DecodeBudget:
    """Limits the pixels that are decoded at a time; threads wait for their turn in the order of their calls.

    Args:
        max_pixels: no image may have more.
    """

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._used = 0
        self._turn = threading.Lock()
        self._released = threading.Condition()

    @contextmanager
    def use(self, pixels: int) -> Iterator[None]:
        """Wait until an image of `pixels` can be decoded, and count it during the block."""
        # Holding the turn while waiting keeps small images from overtaking a large one for ever.
        with self._turn, self._released:
            self._released.wait_for(lambda: self._used + pixels <= self._max_pixels)
            self._used += pixels
        try:
            yield
        finally:
            if pixels >= TRIM_PIXELS:
                _return_freed_memory()
            with self._released:
                self._used -= pixels
                self._released.notify()


def _return_freed_memory() -> None:
    """Return freed memory to the system.

    glibc keeps it, for each thread as much as the thread ever used, so that the memory of the process would be several
    times what is used. Other C libraries do not have this function.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


async def read_body(scope: Scope, receive: Receive, slot: Slot, *, max_bytes: int, timeout: float) -> bytes:
    """Read the whole body of a request.

    Args:
        max_bytes: limit of this body.
        timeout: seconds until the last byte must have arrived.

    Raises:
        ApiError: 413 if the body is too large, 408 if it takes too long, 503 if all bodies together are too large.
    """
    _check_content_length(header(scope, b"content-length"), max_bytes)
    try:
        async with asyncio.timeout(timeout):
            return await _read(receive, slot, max_bytes)
    except TimeoutError:
        raise ApiError(
            408, f"the request body did not arrive within {timeout:g} s; send it faster", Connection="close"
        ) from None
    except ClientDisconnect:
        # Nobody receives this response; it only ends the work.
        raise ApiError(400, "the client disconnected", Connection="close") from None


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first value of a header; `name` is in lower case."""
    return next((value.decode("latin-1") for found, value in scope["headers"] if found == name), None)


def _check_content_length(length: str | None, max_bytes: int) -> None:
    if length is not None and length.isdecimal() and int(length) > max_bytes:
        raise BodyTooLargeError(f"the request has {int(length):,} bytes, the limit is {max_bytes:,}; send less")


async def _read(receive: Receive, slot: Slot, max_bytes: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        if len(body) + len(chunk) > max_bytes:
            text = f"the request has more than {max_bytes:,} bytes; send less"
            # There is nothing to drain if this was the last chunk.
            raise BodyTooLargeError(text) if more else too_large(text)
        slot.reserve_bytes(len(chunk))
        if not more and not body:
            return bytes(chunk)
        body += chunk
    return bytes(body)
