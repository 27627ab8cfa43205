"""How many requests, and bytes of them, are held at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elfnet.serve.refusal import overloaded


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
