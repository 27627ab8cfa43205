"""Requests that arrive within a few milliseconds become one call of the engine, in one thread."""

# Shapes: N images of a request, B images of a batch, H height, W width, K channels, E exits, C classes

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.deploy.engine import Answers
from elfnet.deploy.model import Model
from elfnet.serve.errors import Refusal, overloaded
from elfnet.serve.responses import logits_of_every_exit

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Batched:
    """What came out for one request.

    Attributes:
        point: the operating point that was used.
        answers: of this request's images.
        logits_EC: of every exit, for a request that asked for them.
        batch: images that were computed together.
        engine_ms: of that computation.
    """

    point: str
    answers: Answers
    logits_EC: NDArray[np.float64] | None
    batch: int
    engine_ms: float


class Promised(Protocol):
    """A future, of asyncio or of threads; whoever gives up waiting cancels it."""

    def done(self) -> bool: ...

    def set_result(self, result: Batched) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


@dataclass(eq=False)
class _Job:
    promised: Promised
    pixels_NHWK: Pixels
    point: str | float | None
    every_exit: bool
    arrived: float


HandOver = Callable[[Callable[[], None]], object]
"""Runs a function where the futures of a batch may be resolved, now or soon."""


def at_once(resolve: Callable[[], None]) -> None:
    resolve()


class Batcher:
    """A bounded queue and the thread that empties it.

    Args:
        model: what answers.
        max_batch: images of one call of the engine.
        wait_ms: how long the first job of a batch waits for others.
        max_queue: images that may wait.
        point_under_pressure: from the share of the queue that is full to the point for those who ask for none.
        on_batch: told of every call of the engine: point, answers, seconds.
    """

    hand_over: HandOver = staticmethod(at_once)
    """Once a batch, not once a request: waking another thread costs as much as a small answer."""

    def __init__(
        self,
        model: Model,
        *,
        max_batch: int,
        wait_ms: float,
        max_queue: int,
        point_under_pressure: Callable[[float], str],
        on_batch: Callable[[str, Answers, float], None],
    ) -> None:
        self._model, self._max_batch, self._wait = model, max_batch, wait_ms / 1000.0
        self._max_queue, self._point, self._on_batch = max_queue, point_under_pressure, on_batch
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._closing = False
        self._seconds_per_image = 0.001
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="elfnet-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take nothing more, finish what was taken, end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def ready(self) -> bool:
        return self._thread.is_alive() and not self._closing

    @property
    def waiting(self) -> int:
        """Images in the queue."""
        return self._waiting

    def retry_seconds(self) -> int:
        """About how long it takes to work off what waits; at least 1."""
        return max(1, math.ceil(self._waiting * self._seconds_per_image))

    def submit(
        self, promised: Promised, pixels_NHWK: Pixels, point: str | float | None, *, every_exit: bool = False
    ) -> None:
        """Queue one request, whose answer `promised` will hold; 503 if the queue is full or the service is ending."""
        job = _Job(promised, pixels_NHWK, point, every_exit, time.monotonic())
        with self._changed:
            if self._closing:
                raise Refusal(503, "the service is shutting down", Retry_After="5", Connection="close")
            if self._waiting + len(pixels_NHWK) > self._max_queue:
                raise overloaded(f"{self._waiting} images are waiting already; try again", self.retry_seconds())
            self._jobs.append(job)
            self._waiting += len(pixels_NHWK)
            # The thread is woken by the first job and by a full batch; in between it would only look and wait again.
            if len(self._jobs) == 1 or self._waiting >= self._max_batch:
                self._changed.notify()

    def _work(self) -> None:
        while jobs := self._take():
            groups: dict[str | float | None, list[_Job]] = {}
            for job in jobs:
                groups.setdefault(job.point, []).append(job)
            for point, group in groups.items():
                self._compute(point, group)

    def _take(self) -> list[_Job]:
        """The jobs of the next batch, at least one; none when it is time to end."""
        with self._changed:
            while not self._jobs:
                if self._closing:
                    return []
                self._changed.wait()
            deadline = self._jobs[0].arrived + self._wait
            while self._waiting < self._max_batch and not self._closing:
                left = deadline - time.monotonic()
                if left <= 0.0:
                    break
                self._changed.wait(left)
            self._full_share = self._waiting / self._max_queue
            taken, images = [self._jobs.popleft()], 0
            images = len(taken[0].pixels_NHWK)
            while self._jobs and images + len(self._jobs[0].pixels_NHWK) <= self._max_batch:
                taken.append(self._jobs.popleft())
                images += len(taken[-1].pixels_NHWK)
            self._waiting -= images
        # Whoever gave up waiting is not computed.
        return [job for job in taken if not job.promised.done()] or self._take()

    def _compute(self, asked: str | float | None, group: list[_Job]) -> None:
        try:
            point = self._resolve(asked)
            began = time.perf_counter()
            pixels_BHWK = np.concatenate([job.pixels_NHWK for job in group])
            images_BKHW = self._model.preprocess.normalise(pixels_BHWK)
            answers = self._model.engine(images_BKHW, operating_point=point)
            seconds = time.perf_counter() - began
            self._seconds_per_image += 0.1 * (seconds / len(pixels_BHWK) - self._seconds_per_image)
            self._on_batch(point, answers, seconds)
            made: list[Batched] = []
            start = 0
            for job in group:
                rows = slice(start, start + len(job.pixels_NHWK))
                start = rows.stop
                logits_EC = None
                if job.every_exit:
                    logits_EC = logits_of_every_exit(self._model.engine.backend, images_BKHW[rows])[:, 0]
                made.append(Batched(point, _rows(answers, rows), logits_EC, len(pixels_BHWK), 1000.0 * seconds))
            self.hand_over(partial(_keep_promises, group, made))
        except Exception as error:
            # One bad batch must not end the thread that serves everybody.
            self.hand_over(partial(_break_promises, group, error))

    def _resolve(self, asked: str | float | None) -> str:
        if asked is None:
            return self._point(self._full_share)
        family = self._model.engine.family
        return asked if isinstance(asked, str) else family.for_budget(asked).name


def _keep_promises(group: list[_Job], made: list[Batched]) -> None:
    for job, result in zip(group, made, strict=True):
        if not job.promised.done():
            job.promised.set_result(result)


def _break_promises(group: list[_Job], error: Exception) -> None:
    for job in group:
        if not job.promised.done():
            job.promised.set_exception(error)


def _rows(answers: Answers, rows: slice) -> Answers:
    return Answers(
        answers.prediction_N[rows],
        answers.confidence_N[rows],
        answers.exit_N[rows],
        answers.cost_N[rows],
        answers.probability_NC[rows],
    )
