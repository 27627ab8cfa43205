"""The state of one running service: model, settings, batcher, metrics, decoding threads and sample images.

`LoadShedding` chooses cheaper operating points while the queue fills up, so that fewer requests are refused.
"""

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from fastapi import Request

from elfnet.calibrate.measured_cost import TimeBudget
from elfnet.data.images.decode import Limits, UnreadableImageError, open_image, read_bytes
from elfnet.data.images.silence import silent_decoders
from elfnet.errors import RequestError
from elfnet.inference.controller.ladder import Ladder
from elfnet.inference.engine import Engine
from elfnet.inference.model import Model
from elfnet.inference.predict_files import files_below
from elfnet.serve.admission import Admission, DecodeBudget
from elfnet.serve.batcher import Batcher
from elfnet.serve.metrics import Metrics
from elfnet.serve.responses import RequestLimits, model_info
from elfnet.serve.settings import ServeSettings

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

PUBLISH_SECONDS = 1.0
MAX_SAMPLES = 60
MAX_SAMPLE_BYTES = 2_000_000


@dataclass(frozen=True)
class Sample:
    """An image that the web page offers to try."""

    name: str
    content: bytes
    media_type: str


def read_samples(folder: Path | None) -> tuple[Sample, ...]:
    """Read the first images of a folder and its subfolders, at most `MAX_SAMPLES`; large and other files are skipped.

    The folders take turns, so that every class of a folder of class folders is among them.

    Raises:
        RequestError: if the folder does not exist or has no images.
    """
    if folder is None:
        return ()
    if not folder.is_dir():
        raise RequestError(f"--samples {folder} is not a folder; name a folder with images")
    samples: list[Sample] = []
    for path in _in_turns(folder):
        if len(samples) == MAX_SAMPLES:
            break
        limits = Limits(max_bytes=MAX_SAMPLE_BYTES)
        if path.name.startswith(".") or not path.is_file():
            continue
        try:
            content = read_bytes(path, limits)
            with open_image(content, path.name, limits) as image:
                media_type = SAMPLE_FORMATS.get(str(image.format))
        except UnreadableImageError:
            continue
        if media_type is not None:
            samples.append(Sample(path.name.encode(errors="replace").decode(), content, media_type))
    if not samples:
        raise RequestError(
            f"--samples {folder} has no images; put files of {', '.join(SAMPLE_FORMATS)} there, "
            f"of at most {MAX_SAMPLE_BYTES:,} bytes each"
        )
    return tuple(samples)


def _in_turns(folder: Path) -> Iterator[Path]:
    """The first file of each folder, then the second of each, and so on."""
    by_folder: dict[Path, list[Path]] = {}
    for path in map(Path, files_below(str(folder))):
        by_folder.setdefault(path.parent, []).append(path)
    for turn in zip_longest(*by_folder.values()):
        yield from (path for path in turn if path is not None)


class SharedIndex(Protocol):
    """An integer in shared memory, as `multiprocessing.RawValue` returns it."""

    value: int


class Service:
    """A model with its queue, threads and metrics. The application calls `start` and `close`.

    Args:
        model: computes the predictions.
        name: the title of the web page.
        settings: limits and batching.
        token: needed to change the operating point; None: no client may change it.
        samples: images that the web page offers to try.
        shared_point: index of the operating point, in memory that several processes share; None for one process.
    """

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        settings: ServeSettings | None = None,
        token: str | None = None,
        samples: tuple[Sample, ...] = (),
        shared_point: SharedIndex | None = None,
    ) -> None:
        self._shared_point = shared_point
        self.model, self.name, self.token, self.samples = model, name, token, samples
        self.settings = settings or ServeSettings()
        self.metrics = Metrics(model.engine.family)
        self._shedder = (
            LoadShedder(model.engine, chosen_point=lambda: self.operating_point)
            if self.settings.shed_by_budget
            else None
        )
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
        self._next_publication: asyncio.TimerHandle | None = None
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
        ):
            self.metrics.add_gauge(name, text, read, of_workers="livesum")
        text = "1 while load is shed by a cheaper operating point."
        self.metrics.add_gauge("elfnet_shedding", text, lambda: float(self.is_shedding), of_workers="livemax")

    @property
    def operating_point(self) -> str:
        """The operating point that was set, in this process or in another one that shares it."""
        if self._shared_point is None:
            return self.model.operating_point
        return self.model.engine.family.points[self._shared_point.value].name

    def resolve(self, point: str | float) -> str | float:
        """Return the name of the most accurate point within a budget in milliseconds; anything else as it is.

        Raises:
            RequestError: all points take longer, or no times were measured when the service started.
        """
        # The model would measure now, beside the requests in progress.
        if self.model.times is None and isinstance(point, str) and TimeBudget.parse(point) is not None:
            raise RequestError(f"budget {point} needs times, which this service has not measured; send a mean cost")
        return self.model.resolve(point)

    def set_operating_point(self, point: str | float) -> None:
        """Set the operating point by its name or by a budget, for all processes that share it."""
        name = self.model.set_operating_point(self.resolve(point))
        if self._shared_point is not None:
            self._shared_point.value = [one.name for one in self.model.engine.family.points].index(name)

    @property
    def current_point(self) -> str:
        """The operating point of a request that names none."""
        return self.operating_point if self._shedder is None else self._shedder.point

    @property
    def is_shedding(self) -> bool:
        """Whether a cheaper point than the one that was set is in use."""
        return self.current_point != self.operating_point

    def _default_point(self, queue_fill: float) -> str:
        return self.operating_point if self._shedder is None else self._shedder.update(queue_fill)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Warm up and start to compute; `loop` is the event loop that handles the requests."""
        self._cleanup.enter_context(silent_decoders())
        self._cleanup.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.model.warm_up()
        self.batcher.call_soon = loop.call_soon_threadsafe
        self.batcher.start()
        if self.metrics.of_several_workers:
            self._publish_gauges(loop)

    def _publish_gauges(self, loop: asyncio.AbstractEventLoop) -> None:
        """Publish the gauges now and every second, for scrapes that another process answers."""
        self.metrics.publish_gauges()
        self._next_publication = loop.call_later(PUBLISH_SECONDS, self._publish_gauges, loop)

    def close(self) -> None:
        """Complete the requests in progress, then end all threads."""
        if self._next_publication is not None:
            self._next_publication.cancel()
        self.decode_pool.shutdown(wait=True)
        self.batcher.close()
        self._cleanup.close()


async def get_service(request: Request) -> Service:
    """Return the service of the application; a FastAPI dependency."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


LOW_PRESSURE, HIGH_PRESSURE = 0.25, 0.75
"""Filled shares of the queue between which the allowed mean cost falls from that of the point that was set to that of
the cheapest point."""

HALF_LIFE = 1.0
"""Seconds in which the pressure halves. It rises at once and falls slowly, so that the point does not oscillate."""


class LoadShedder:
    """Chooses the operating point of requests that name none.

    The pressure is the filled share of the queue. Up to `LOW_PRESSURE` the point that was set is used. From there to
    `HIGH_PRESSURE` the allowed mean cost falls linearly to that of the cheapest point, and the most accurate
    efficient point within it is used. Requests that name a point or a budget are not affected.

    Args:
        engine: has the operating points.
        chosen_point: returns the operating point that was set; by default that of the engine.
        clock: returns seconds.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        chosen_point: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._clock = engine, clock
        self._chosen_point = chosen_point or (lambda: engine.operating_point)
        self._ladder = Ladder.of(engine.family)
        self._pressure = 0.0
        self._updated = clock()

    @property
    def pressure(self) -> float:
        """The pressure now, in [0, 1]."""
        return self._pressure * math.pow(0.5, (self._clock() - self._updated) / HALF_LIFE)

    @property
    def point(self) -> str:
        """The operating point that a request gets now."""
        return self._point_at(self.pressure)

    def update(self, queue_fill: float) -> str:
        """Update the pressure with the filled share of the queue; returns the operating point to use."""
        self._pressure, self._updated = max(queue_fill, self.pressure), self._clock()
        return self._point_at(self._pressure)

    def _point_at(self, pressure: float) -> str:
        chosen = self._chosen_point()
        share = min(1.0, max(0.0, (pressure - LOW_PRESSURE) / (HIGH_PRESSURE - LOW_PRESSURE)))
        if share == 0.0:
            return chosen
        full_cost = self._engine.family.point(chosen).expected.mean_cost
        allowed = full_cost - share * (full_cost - self._ladder.mean_cost[0])
        cheaper = [
            name
            for name, cost in zip(self._ladder.names, self._ladder.mean_cost, strict=True)
            if cost <= allowed + 1e-12 and cost < full_cost
        ]
        return cheaper[-1] if cheaper else chosen
