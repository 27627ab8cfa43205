"""Dynamic batching: requests that arrive within a few milliseconds become one call of the engine, in one thread."""

# Shapes: N images of a request, B images of a batch, H height, W width, K channels, E exits, C classes

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.inference.engine import Answers, all_exit_logits
from elfnet.inference.model import Model
from elfnet.serve.errors import ApiError, overloaded

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class BatchResult:
    """The result of one request.

    Attributes:
        point: the operating point that was used.
        answers: predictions for the images of this request.
        logits_EC: logits of every exit, if the request needs them.
        batch: images that were computed together.
        engine_ms: milliseconds that their computation took.
    """

    point: str
    answers: Answers
    logits_EC: NDArray[np.float64] | None
    batch: int
    engine_ms: float


class Future(Protocol):
    """The part of `asyncio.Future` and `concurrent.futures.Future` that is used here.

    A cancelled future is done, and its request is not computed.
    """

    def done(self) -> bool: ...

    def set_result(self, result: BatchResult) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


@dataclass(eq=False)
class _Job:
    future: Future
    pixels_NHWK: Pixels
    point: str | float | None
    all_exits: bool
    arrival: float


CallSoon = Callable[[Callable[[], None]], object]
"""Calls a function, now or soon, in the thread in which futures may be resolved."""


def call_now(resolve: Callable[[], None]) -> None:
    resolve()


class Batcher:
    """A bounded queue and the thread that computes what is in it.

    Args:
        model: computes the predictions.
        max_batch: images per call of the engine.
        wait_ms: how long the first request of a batch waits for others.
        max_queue: images that may wait.
        default_point: from the filled share of the queue to the operating point of requests that name none.
        on_batch: called after every batch with the operating point of each image, the predictions and the seconds.
    """

    call_soon: CallSoon = staticmethod(call_now)
    """Used once per batch, not once per request: waking another thread costs as much as a small request."""

    def __init__(
        self,
        model: Model,
        *,
        max_batch: int,
        wait_ms: float,
        max_queue: int,
        default_point: Callable[[float], str],
        on_batch: Callable[[Sequence[str], Answers, float], None],
    ) -> None:
        self._model, self._max_batch, self._wait = model, max_batch, wait_ms / 1000.0
        self._max_queue, self._default_point, self._on_batch = max_queue, default_point, on_batch
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._closing = False
        self._seconds_per_image = 0.001
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="elfnet-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Refuse new requests, compute those in the queue, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return self._thread.is_alive() and not self._closing

    @property
    def waiting(self) -> int:
        """Images in the queue."""
        return self._waiting

    def retry_after(self) -> int:
        """Estimate the seconds until the queue is empty; at least 1."""
        return max(1, math.ceil(self._waiting * self._seconds_per_image))

    def submit(
        self, future: Future, pixels_NHWK: Pixels, point: str | float | None, *, all_exits: bool = False
    ) -> None:
        """Queue one request.

        Args:
            future: receives the `BatchResult`, or the exception.
            point: name of an operating point, a budget, or None for the default point.
            all_exits: also compute the logits of every exit, for the first image.

        Raises:
            ApiError: 503 if the queue is full or the service is shutting down.
        """
        job = _Job(future, pixels_NHWK, point, all_exits, time.monotonic())
        with self._changed:
            if self._closing:
                raise ApiError(503, "the service is shutting down", Retry_After="5", Connection="close")
            if self._waiting + len(pixels_NHWK) > self._max_queue:
                raise overloaded(
                    f"{self._waiting} of at most {self._max_queue} images are waiting; try again later",
                    self.retry_after(),
                )
            self._jobs.append(job)
            self._waiting += len(pixels_NHWK)
            # In between, the thread would only wake up, check and wait again.
            if len(self._jobs) == 1 or self._waiting >= self._max_batch:
                self._changed.notify()

    def _work(self) -> None:
        while jobs := self._next_batch():
            self._compute(jobs)

    def _next_batch(self) -> list[_Job]:
        """Wait for the jobs of the next batch, at least one; an empty list ends the thread."""
        with self._changed:
            while not self._jobs:
                if self._closing:
                    return []
                self._changed.wait()
            deadline = self._jobs[0].arrival + self._wait
            while self._waiting < self._max_batch and not self._closing:
                left = deadline - time.monotonic()
                if left <= 0.0:
                    break
                self._changed.wait(left)
            self._queue_fill = self._waiting / self._max_queue
            taken = [self._jobs.popleft()]
            images = len(taken[0].pixels_NHWK)
            while self._jobs and images + len(self._jobs[0].pixels_NHWK) <= self._max_batch:
                taken.append(self._jobs.popleft())
                images += len(taken[-1].pixels_NHWK)
            self._waiting -= images
        return [job for job in taken if not job.future.done()] or self._next_batch()

    def _compute(self, jobs: list[_Job]) -> None:
        """Compute the images of all requests together, each at the operating point of its request."""
        try:
            points = [self._resolve_point(job.point) for job in jobs]
            point_of_image = [point for job, point in zip(jobs, points, strict=True) for _ in job.pixels_NHWK]
            start_time = time.perf_counter()
            pixels_BHWK = np.concatenate([job.pixels_NHWK for job in jobs])
            answers = self._model.classify(pixels_BHWK, operating_point=point_of_image)
            seconds = time.perf_counter() - start_time
            self._seconds_per_image += 0.1 * (seconds / len(pixels_BHWK) - self._seconds_per_image)
            self._on_batch(point_of_image, answers, seconds)
            results: list[BatchResult] = []
            start = 0
            for job, point in zip(jobs, points, strict=True):
                rows = slice(start, start + len(job.pixels_NHWK))
                start = rows.stop
                logits_EC = None
                if job.all_exits:
                    images_NKHW = self._model.preprocess.normalise(job.pixels_NHWK)
                    logits_EC = all_exit_logits(self._model.engine.backend, images_NKHW)[0].astype(np.float64)
                results.append(BatchResult(point, answers.take(rows), logits_EC, len(pixels_BHWK), 1000.0 * seconds))
            self.call_soon(partial(_set_results, jobs, results))
        except Exception as error:
            # A failure of one batch must not end the thread.
            self.call_soon(partial(_set_exception, jobs, error))

    def _resolve_point(self, requested: str | float | None) -> str:
        if requested is None:
            return self._default_point(self._queue_fill)
        family = self._model.engine.family
        return requested if isinstance(requested, str) else family.for_budget(requested).name


def _set_results(group: list[_Job], results: list[BatchResult]) -> None:
    for job, result in zip(group, results, strict=True):
        if not job.future.done():
            job.future.set_result(result)


def _set_exception(group: list[_Job], error: Exception) -> None:
    for job in group:
        if not job.future.done():
            job.future.set_exception(error)
