"""Everything that one running service holds."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fastapi import Request
from PIL import Image

from elfnet.deploy.images.decode import silent_pillow
from elfnet.deploy.model import Model
from elfnet.errors import RequestError
from elfnet.serve.admission import Admission
from elfnet.serve.batcher import Batcher
from elfnet.serve.metrics import Metrics
from elfnet.serve.shedding import Shedding


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


SHOWN = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp"}
"""Formats that browsers show."""

MOST_SAMPLES = 60
MOST_BYTES = 2_000_000


@dataclass(frozen=True)
class Sample:
    name: str
    content: bytes
    media_type: str


def read_samples(folder: Path | None) -> tuple[Sample, ...]:
    """The first images of a folder by name, at most `MOST_SAMPLES`; what is large or no image is left out."""
    if folder is None:
        return ()
    if not folder.is_dir():
        raise RequestError(f"--samples {folder} is not a folder; name one with images")
    samples: list[Sample] = []
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        if len(samples) == MOST_SAMPLES:
            break
        if path.stat().st_size > MOST_BYTES:
            continue
        try:
            with Image.open(path, formats=tuple(SHOWN)) as picture:
                media_type = SHOWN[str(picture.format)]
        except (OSError, ValueError, KeyError, Image.DecompressionBombError):
            continue
        samples.append(Sample(path.name.encode(errors="replace").decode(), path.read_bytes(), media_type))
    if not samples:
        raise RequestError(f"--samples {folder} holds no image of {', '.join(SHOWN)} below {MOST_BYTES:,} bytes")
    return tuple(samples)


MOST_DECODERS = 4
SWITCH_SECONDS = 1e-4
"""Between two stages the engine's thread needs the interpreter for microseconds; by default it would wait 5 ms for it
while the event loop is busy. With 64 clients on two cores this makes a sixth more requests a second."""


class Service:
    """The model with its queue, threads and figures; `start` and `close` belong to the server's life.

    Args:
        model: what answers.
        name: what the page calls it.
        settings: limits and batching.
        token: for changing the operating point; None forbids it.
        samples: images for the page.
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
        self.shedding = Shedding(model.engine) if self.settings.shed_by_budget else None
        self.batcher = Batcher(
            model,
            max_batch=self.settings.max_batch,
            wait_ms=self.settings.wait_ms,
            max_queue=self.settings.max_queue,
            point_under_pressure=self._point_under_pressure,
            on_batch=self.metrics.on_batch,
        )
        self.admission = Admission(self.settings.max_requests, self.settings.max_held_bytes, self.batcher.retry_seconds)
        self.decoders = ThreadPoolExecutor(min(MOST_DECODERS, os.cpu_count() or 1), thread_name_prefix="elfnet-decode")
        self._life = ExitStack()
        self.metrics.watch("elfnet_queue_images", "Images waiting for the engine.", lambda: self.batcher.waiting)
        self.metrics.watch("elfnet_queue_limit_images", "Images that may wait.", lambda: self.settings.max_queue)
        self.metrics.watch("elfnet_requests_held", "Prediction requests being served.", lambda: self.admission.requests)
        self.metrics.watch("elfnet_held_bytes", "Bytes of their bodies.", lambda: self.admission.held_bytes)
        self.metrics.watch("elfnet_shedding", "1 while a cheaper point than the chosen is used.", self._is_shedding)

    @property
    def point_now(self) -> str:
        """The point that a request without a wish gets now."""
        return self.model.operating_point if self.shedding is None else self.shedding.point

    def _point_under_pressure(self, full_share: float) -> str:
        return self.model.operating_point if self.shedding is None else self.shedding.feel(full_share)

    def _is_shedding(self) -> float:
        return float(self.point_now != self.model.operating_point)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Warm up and begin to answer; requests are those of `loop`."""
        self._life.enter_context(silent_pillow())
        self._life.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_SECONDS)
        self._warm_up()
        self.batcher.hand_over = loop.call_soon_threadsafe
        self.batcher.start()

    def close(self) -> None:
        """Finish what was taken, then end all threads."""
        self.decoders.shutdown(wait=True)
        self.batcher.close()
        self._life.close()

    def _warm_up(self) -> None:
        """Each set of heads once: sessions without a head are built when they are first needed."""
        blank_NHWK = np.zeros((1, *self.model.preprocess.shape), dtype=np.uint8)
        images_NKHW = self.model.preprocess.normalise(blank_NHWK)
        engine = self.model.engine
        by_heads = {engine.exits_in_use(point.name): point.name for point in engine.family.points}
        for name in by_heads.values():
            engine(images_NKHW, operating_point=name)
        # An early leaver does not come to the later stages; here every stage is run.
        full = engine.backend.start(images_NKHW)
        for k in range(engine.backend.exits):
            full, _ = engine.backend.run(k, full)


async def running_service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service
