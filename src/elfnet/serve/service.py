"""The state of one running service: model, settings, batcher, metrics, decoding threads and sample images."""

import asyncio
import ctypes
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from PIL import Image, _imaging

from elfnet.errors import RequestError
from elfnet.inference.images import silent_pillow
from elfnet.inference.model import Model
from elfnet.serve.admission import Admission, DecodeBudget
from elfnet.serve.batcher import Batcher
from elfnet.serve.metrics import Metrics
from elfnet.serve.responses import RequestLimits, model_info
from elfnet.serve.shedding import LoadShedder

MAX_DECODE_THREADS = 4
SWITCH_INTERVAL = 1e-4
"""Seconds for `sys.setswitchinterval`. Between two stages the engine's thread needs the interpreter for microseconds;
with the default it would wait 5 ms for it while the event loop is busy. With 64 clients on two cores this gives a
sixth more requests per second."""

SAMPLE_FORMATS = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
"""Image formats that browsers show, with their media types."""

HOST = re.compile(r"\*|[A-Za-z0-9._-]+|[0-9A-Fa-f.]*(:[0-9A-Fa-f.]*){2,}")
"""A host name or an address, as it is written in a URL but without port and brackets; or "*"."""

MAX_SAMPLES = 60
MAX_SAMPLE_BYTES = 2_000_000


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
        allowed_hosts: names and addresses that clients may use in the header `Host`, in addition to `localhost`,
            loopback addresses and the address that they connect to; "*" allows all.
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
    allowed_hosts: tuple[str, ...] = ()

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
        if not 0.0 < self.read_seconds <= 3600.0:
            raise RequestError(f"read_seconds={self.read_seconds:g} must be above 0 and at most 3600")
        for host in self.allowed_hosts:
            if not HOST.fullmatch(host):
                raise RequestError(
                    f"allowed_hosts has {host!r}, which is not a host name; give a name or an address, without port"
                )
        # Otherwise a request within the first limit could never be accepted.
        for part, whole in (
            ("max_images", "max_queue"),
            ("max_body_bytes", "max_held_bytes"),
            ("max_pixels", "max_request_pixels"),
            ("max_request_pixels", "max_held_pixels"),
        ):
            if getattr(self, part) > getattr(self, whole):
                raise RequestError(
                    f"{part}={getattr(self, part)} is more than {whole}={getattr(self, whole)}; "
                    f"lower the first or raise the second"
                )


@dataclass(frozen=True)
class Sample:
    """An image that the web page offers to try."""

    name: str
    content: bytes
    media_type: str


def read_samples(folder: Path | None) -> tuple[Sample, ...]:
    """Read the first images of a folder by name, at most `MAX_SAMPLES`; large files and other files are skipped.

    Raises:
        RequestError: if the folder does not exist or has no images.
    """
    if folder is None:
        return ()
    if not folder.is_dir():
        raise RequestError(f"--samples {folder} is not a folder; name a folder with images")
    samples: list[Sample] = []
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        if len(samples) == MAX_SAMPLES:
            break
        if path.stat().st_size > MAX_SAMPLE_BYTES:
            continue
        try:
            with Image.open(path, formats=tuple(SAMPLE_FORMATS)) as image:
                media_type = SAMPLE_FORMATS[str(image.format)]
        except (OSError, ValueError, KeyError, Image.DecompressionBombError):
            continue
        samples.append(Sample(path.name.encode(errors="replace").decode(), path.read_bytes(), media_type))
    if not samples:
        raise RequestError(
            f"--samples {folder} has no images; put files of {', '.join(SAMPLE_FORMATS)} there, "
            f"of at most {MAX_SAMPLE_BYTES:,} bytes each"
        )
    return tuple(samples)


@contextmanager
def silent_libtiff() -> Iterator[None]:
    """Keep libtiff from writing to standard error, where a client could fill the log with damaged files.

    Of the libraries that decode images only this one writes there. Pillow has no setting for it, so the handlers are
    replaced in the library that Pillow has loaded; where it cannot be found, nothing is changed.
    """
    with ExitStack() as restore:
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(_imaging.__file__)
            for set_handler in (library.TIFFSetErrorHandler, library.TIFFSetWarningHandler):
                set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
                restore.callback(set_handler, set_handler(None))
        yield


class Service:
    """A model with its queue, threads and metrics. The application calls `start` and `close`.

    Args:
        model: computes the predictions.
        name: the title of the web page.
        settings: limits and batching.
        token: needed to change the operating point; None forbids it to everybody.
        samples: images that the web page offers to try.
    """

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        settings: ServeSettings | None = None,
        token: str | None = None,
        samples: tuple[Sample, ...] = (),
    ) -> None:
        self.model, self.name, self.token, self.samples = model, name, token, samples
        self.settings = settings or ServeSettings()
        self.metrics = Metrics(model.engine.family)
        self._shedder = LoadShedder(model.engine) if self.settings.shed_by_budget else None
        self.batcher = Batcher(
            model,
            max_batch=self.settings.max_batch,
            wait_ms=self.settings.wait_ms,
            max_queue=self.settings.max_queue,
            default_point=self._default_point,
            on_batch=self.metrics.on_batch,
        )
        self.admission = Admission(
            max_requests=self.settings.max_requests,
            max_bytes=self.settings.max_held_bytes,
            max_pixels=self.settings.max_held_pixels,
            retry_after=self.batcher.retry_after,
        )
        self.decode_budget = DecodeBudget(self.settings.max_pixels)
        threads = min(MAX_DECODE_THREADS, os.cpu_count() or 1)
        self.decode_pool = ThreadPoolExecutor(threads, thread_name_prefix="elfnet-decode")
        limits = RequestLimits(
            body_bytes=self.settings.max_body_bytes,
            images=self.settings.max_images,
            pixels=self.settings.max_pixels,
            request_pixels=self.settings.max_request_pixels,
        )
        # Serialised once, because there may be thousands of classes and hundreds of operating points.
        self.model_info = model_info(model, name, limits).model_dump_json().encode()
        self._cleanup = ExitStack()
        self._add_gauges()

    def _add_gauges(self) -> None:
        for name, text, read in (
            ("elfnet_queue_images", "Images waiting for the engine.", lambda: self.batcher.waiting),
            ("elfnet_queue_limit_images", "Images that may wait.", lambda: self.settings.max_queue),
            ("elfnet_requests_held", "Requests in progress.", lambda: self.admission.requests),
            (
                "elfnet_held_bytes",
                "Bytes of the bodies of the requests in progress.",
                lambda: self.admission.held_bytes,
            ),
            ("elfnet_held_pixels", "Pixels of images that are not decoded yet.", lambda: self.admission.held_pixels),
            ("elfnet_shedding", "1 while load is shed by a cheaper operating point.", lambda: float(self.is_shedding)),
        ):
            self.metrics.add_gauge(name, text, read)

    @property
    def current_point(self) -> str:
        """The operating point of a request that names none."""
        return self.model.operating_point if self._shedder is None else self._shedder.point

    @property
    def is_shedding(self) -> bool:
        """Whether a cheaper point than the one that was set is in use."""
        return self.current_point != self.model.operating_point

    def _default_point(self, queue_fill: float) -> str:
        return self.model.operating_point if self._shedder is None else self._shedder.update(queue_fill)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Warm up and start to compute; `loop` is the event loop that handles the requests."""
        self._cleanup.enter_context(silent_pillow())
        self._cleanup.enter_context(silent_libtiff())
        self._cleanup.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.model.warm_up()
        self.batcher.call_soon = loop.call_soon_threadsafe
        self.batcher.start()

    def close(self) -> None:
        """Complete the requests in progress, then end all threads."""
        self.decode_pool.shutdown(wait=True)
        self.batcher.close()
        self._cleanup.close()


async def get_service(request: Request) -> Service:
    """Return the service of the application; a FastAPI dependency."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service
