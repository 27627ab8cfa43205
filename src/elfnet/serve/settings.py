"""The settings of a service: its limits, how it forms batches, and which clients it answers."""

import re
from dataclasses import dataclass, replace

from elfnet.errors import RequestError

HOST = re.compile(r"\*|[A-Za-z0-9._-]+|[0-9A-Fa-f.]*(:[0-9A-Fa-f.]*){2,}")
"""A host name or an address, as it is written in a URL but without port and brackets; or "*"."""
ORIGIN = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
"""The origin of a web page, as browsers send it."""

MAX_WORKERS = 64
SHARED_LIMITS = ("max_queue", "max_requests", "max_held_bytes", "max_held_pixels")
"""Limits on all requests together, which several worker processes share."""

_PARTS = {
    "max_images": "max_queue",
    "max_body_bytes": "max_held_bytes",
    "max_pixels": "max_request_pixels",
    "max_request_pixels": "max_held_pixels",
}
"""Limits of one request, with the limit on all requests that must not be lower."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Limits of the service, and how it forms batches.

    Attributes:
        max_batch: images per call of the engine.
        wait_ms: milliseconds that the first image of a batch waits for others.
        max_queue: images waiting for the engine; beyond it the response is 503.
        max_requests: requests in progress; beyond it the response is 503.
        max_body_bytes: bytes per request.
        max_held_bytes: bytes of the bodies of all requests in progress; beyond it the response is 503.
        max_images: images per request.
        max_pixels: pixels per image, before it is resized; also the pixels that are decoded at a time.
        max_request_pixels: pixels of all images of one request.
        max_held_pixels: pixels of the images of all requests that are not decoded yet; beyond it the response is 503.
        read_seconds: time a client has to send a header, and again to send the body.
        shed_by_budget: use cheaper operating points while the queue fills up.
        request_seconds: time for a whole request, from its header to its response; beyond it the response is 503.
        allowed_hosts: names and addresses that clients may use in the header `Host`, in addition to `localhost`,
            loopback addresses and the address that they connect to; "*" allows all.
        allowed_origins: web sites, such as "https://shop.example", whose pages may send requests and read responses.
        metrics_route: answer `/metrics`; False if the metrics have a port of their own.
    """

    max_batch: int = 64
    wait_ms: float = 2.0
    max_queue: int = 512
    max_requests: int = 512
    max_body_bytes: int = 16_000_000
    max_held_bytes: int = 128_000_000
    max_images: int = 32
    max_pixels: int = 24_000_000
    max_request_pixels: int = 96_000_000
    max_held_pixels: int = 384_000_000
    read_seconds: float = 20.0
    shed_by_budget: bool = False
    request_seconds: float = 60.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    metrics_route: bool = True

    def __post_init__(self) -> None:
        for name in (
            "max_batch",
            "max_queue",
            "max_requests",
            "max_body_bytes",
            "max_held_bytes",
            "max_images",
            "max_pixels",
            "max_request_pixels",
            "max_held_pixels",
        ):
            if getattr(self, name) < 1:
                raise RequestError(f"{name}={getattr(self, name)} must be 1 or more")
        if not 0.0 <= self.wait_ms <= 1000.0:
            raise RequestError(f"wait_ms={self.wait_ms:g} must be between 0 and 1000")
        for name in ("read_seconds", "request_seconds"):
            if not 0.0 < getattr(self, name) <= 3600.0:
                raise RequestError(f"{name}={getattr(self, name):g} must be above 0 and at most 3600")
        for host in self.allowed_hosts:
            if not HOST.fullmatch(host):
                raise RequestError(
                    f"allowed_hosts has {host!r}, which is not a host name; give a name or an address, without port"
                )
        for origin in self.allowed_origins:
            if not ORIGIN.fullmatch(origin):
                raise RequestError(
                    f"allowed_origins has {origin!r}, which is not an origin; give scheme and host, "
                    "such as https://shop.example, without path"
                )
        # Otherwise a request within the first limit could never be accepted.
        for part, whole in _PARTS.items():
            if getattr(self, part) > getattr(self, whole):
                raise RequestError(
                    f"{part}={getattr(self, part)} is more than {whole}={getattr(self, whole)}; "
                    f"lower the first or raise the second"
                )

    def divide(self, workers: int) -> "ServeSettings":
        """Return the settings of one of several worker processes, whose limits together are these.

        Raises:
            RequestError: if a worker could not accept the largest request any more.
        """
        if not 1 <= workers <= MAX_WORKERS:
            raise RequestError(f"workers={workers} must be between 1 and {MAX_WORKERS}")
        shares = {name: getattr(self, name) // workers for name in SHARED_LIMITS}
        for part, whole in _PARTS.items():
            if whole in shares and getattr(self, part) > shares[whole]:
                raise RequestError(
                    f"{whole}={getattr(self, whole)} divided by {workers} workers is less than "
                    f"{part}={getattr(self, part)}; raise the first, or lower the second or --workers"
                )
        return replace(self, **{name: max(1, share) for name, share in shares.items()})
