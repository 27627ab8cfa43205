"""What the service allows, and how it forms batches."""

from dataclasses import dataclass

from elfnet.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Limits that keep memory bounded whatever is sent, and the dials of batching.

    Attributes:
        max_batch: images in one call of the engine.
        wait_ms: how long the first image of a batch waits for company.
        max_queue: images waiting; past it the answer is 503.
        max_requests: requests between their first byte and their answer; past it the answer is 503.
        max_body_bytes: of one request.
        max_held_bytes: bodies of all requests together; past it the answer is 503.
        max_images: of one request.
        max_pixels: of one image before it is resized.
        read_seconds: a client has this long to send a header, and as long again for the body.
        shed_by_budget: lower the operating point under pressure.
    """

    max_batch: int = 64
    wait_ms: float = 2.0
    max_queue: int = 512
    max_requests: int = 512
    max_body_bytes: int = 16_000_000
    max_held_bytes: int = 128_000_000
    max_images: int = 32
    max_pixels: int = 24_000_000
    read_seconds: float = 20.0
    shed_by_budget: bool = False

    def __post_init__(self) -> None:
        for name in (
            "max_batch",
            "max_queue",
            "max_requests",
            "max_body_bytes",
            "max_held_bytes",
            "max_images",
            "max_pixels",
        ):
            if getattr(self, name) < 1:
                raise RequestError(f"{name}={getattr(self, name)} must be 1 or more")
        if not 0.0 <= self.wait_ms <= 1000.0:
            raise RequestError(f"wait_ms={self.wait_ms:g} must lie in 0..1000")
        if not 0.0 < self.read_seconds <= 3600.0:
            raise RequestError(f"read_seconds={self.read_seconds:g} must lie above 0 and be at most 3600")
        if self.max_images > self.max_queue:
            raise RequestError(
                f"max_images={self.max_images} of one request do not fit into max_queue={self.max_queue}; "
                f"lower the first or raise the second"
            )
        if self.max_body_bytes > self.max_held_bytes:
            raise RequestError(
                f"max_body_bytes={self.max_body_bytes} of one request is more than max_held_bytes="
                f"{self.max_held_bytes} of all; lower the first or raise the second"
            )
