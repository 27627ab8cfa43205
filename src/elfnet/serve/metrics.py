"""Metrics of the service: Prometheus metrics, recent traffic for the web page, and drift from calibration."""

# Shapes: N answers in the window, E exits

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from elfnet.calibrate.point_family import Family
from elfnet.inference.engine import Answers

WORKERS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
GaugeMode = Literal["livesum", "livemax", "livemostrecent"]
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RECENT_REQUESTS = 1024
"""Requests whose durations are kept for the web page."""

RATE_SECONDS = 10.0
"""The request rate on the web page is that of the last seconds."""

WINDOW = 2048
"""Images over which means and drift are computed."""

MIN_FOR_DRIFT = 100
"""Drift over fewer images would be mostly noise, and is not reported."""


@dataclass(frozen=True, kw_only=True)
class RecentStats:
    """Statistics of the last images, at most `WINDOW`; None where there are no images, or too few.

    Expected values are those of the same operating points on the calibration split, weighted by how many images used
    each point.

    Attributes:
        images: number of images.
        exit_share: share of the images that left at each exit.
        expected_share: expected value of `exit_share`.
        mean_cost: mean cost per image.
        expected_cost: expected value of `mean_cost`.
        mean_confidence: mean confidence at the exit taken.
        exit_drift: population stability index of the exit shares.
        confidence_drift: mean confidence minus the accuracy on the calibration split.
    """

    images: int
    exit_share: tuple[float, ...] | None = None
    expected_share: tuple[float, ...] | None = None
    mean_cost: float | None = None
    expected_cost: float | None = None
    mean_confidence: float | None = None
    exit_drift: float | None = None
    confidence_drift: float | None = None


class RecentAnswers:
    """The last predictions, compared with what calibration measured; no labels are needed.

    The engine's thread adds to it, and any thread may read it.
    """

    def __init__(self, family: Family, *, window: int = WINDOW) -> None:
        self._family = family
        self._position = {point.name: i for i, point in enumerate(family.points)}
        self._answers: deque[tuple[int, int, float, float]] = deque(maxlen=window)
        self._lock = threading.Lock()

    def add(self, points: Sequence[str], answers: Answers) -> None:
        """Add the predictions of one batch; `points` has the operating point of each image."""
        positions = [self._position[point] for point in points]
        columns = (answers.exit_N.tolist(), answers.confidence_N.tolist(), answers.cost_N.tolist())
        rows = list(zip(positions, *columns, strict=True))
        with self._lock:
            self._answers.extend(rows)

    def stats(self) -> RecentStats:
        """Compute the statistics of the images in the window."""
        with self._lock:
            answers = list(self._answers)
        if not answers:
            return RecentStats(images=0)
        point_N, exit_N, confidence_N, cost_N = (np.array(column) for column in zip(*answers, strict=True))
        used, count = np.unique(point_N.astype(np.int64), return_counts=True)
        expected = [self._family.points[i].expected for i in used]
        weight = count / len(answers)
        seen_E = np.bincount(exit_N.astype(np.int64), minlength=self._family.exits)
        expected_E = sum(w * np.asarray(e.exit_share) for w, e in zip(weight, expected, strict=True))
        accuracy = float(sum(w * e.accuracy for w, e in zip(weight, expected, strict=True)))
        mean_confidence = float(np.mean(confidence_N))
        enough = len(answers) >= MIN_FOR_DRIFT
        return RecentStats(
            images=len(answers),
            exit_share=tuple((seen_E / len(answers)).tolist()),
            expected_share=tuple(np.asarray(expected_E).tolist()),
            mean_cost=float(np.mean(cost_N)),
            expected_cost=float(sum(w * e.mean_cost for w, e in zip(weight, expected, strict=True))),
            mean_confidence=mean_confidence,
            exit_drift=stability_index(seen_E, np.asarray(expected_E), self._family.n) if enough else None,
            confidence_drift=mean_confidence - accuracy if enough else None,
        )


def stability_index(seen_E: NDArray[np.int64], expected_E: NDArray[np.float64], calibration_n: int) -> float:
    """Compute the population stability index of exit counts against the shares on the calibration split.

    It is the sum over exits of (p - q) ln(p / q), with p the shares seen and q the expected ones. Half an example is
    added to every exit on both sides, so that an exit without examples gives a finite value. By convention 0.1 is
    worth a look and 0.25 is a change.

    Args:
        seen_E: images that left at each exit.
        expected_E: expected share of each exit.
        calibration_n: examples of the calibration split.
    """
    p_E = (seen_E + 0.5) / (seen_E.sum() + 0.5 * len(seen_E))
    q_E = (expected_E * calibration_n + 0.5) / (calibration_n + 0.5 * len(expected_E))
    return math.fsum((p_E - q_E) * np.log(p_E / q_E))


def registry_of_workers(directory: str) -> CollectorRegistry:
    """Return a registry that reads what all worker processes have written to a directory."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call]
    return registry


class Metrics:
    """All metrics of one service, in a Prometheus registry of its own.

    If the environment variable `PROMETHEUS_MULTIPROC_DIR` is set, before prometheus_client is imported, the metrics are
    those of all worker processes that have the same directory there.

    Args:
        family: the operating points, with what calibration measured for them.
        clock: returns seconds.
    """

    def __init__(self, family: Family, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._registry = CollectorRegistry()
        self.of_several_workers = WORKERS_VARIABLE in os.environ
        self._gauges: list[tuple[Gauge, Callable[[], float]]] = []
        self._published: set[int] = set()
        self.recent = RecentAnswers(family)
        self._lock = threading.Lock()
        self._requests_seen: deque[tuple[float, float, int]] = deque(maxlen=RECENT_REQUESTS)
        into: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter("elfnet_requests", "Requests, by route and status.", ("route", "status"), **into)
        self._duration = Histogram(
            "elfnet_request_seconds", "Seconds per request.", ("route",), buckets=SECONDS_BUCKETS, **into
        )
        self._images = Counter("elfnet_images", "Images, by operating point.", ("operating_point",), **into)
        self._exits = Counter("elfnet_exit_images", "Images, by the exit they left at (from 1).", ("exit",), **into)
        self._cost = Counter("elfnet_cost", "Sum of the costs of all images.", **into)
        self._batch = Histogram("elfnet_batch_images", "Images per engine call.", buckets=BATCH_BUCKETS, **into)
        self._engine = Histogram("elfnet_engine_seconds", "Seconds per engine call.", buckets=SECONDS_BUCKETS, **into)
        for k in range(family.exits):
            self._exits.labels(str(k + 1))
        self._add_recent_gauges()

    def _add_recent_gauges(self) -> None:
        over = f"over the last {WINDOW} images; NaN while there are too few."
        for name, text, field in (
            ("elfnet_mean_cost", "Mean cost", "mean_cost"),
            ("elfnet_mean_cost_expected", "Mean cost expected by calibration", "expected_cost"),
            ("elfnet_mean_confidence", "Mean confidence", "mean_confidence"),
            ("elfnet_exit_drift", "Population stability index of the exit shares against calibration", "exit_drift"),
            ("elfnet_confidence_drift", "Mean confidence minus accuracy on the calibration split", "confidence_drift"),
        ):
            # There is no mean over processes; each of them sees the same mix of requests.
            self.add_gauge(name, f"{text} {over}", partial(self._recent_value, field), of_workers="livemostrecent")

    def _recent_value(self, field: str) -> float:
        value: float | None = getattr(self.recent.stats(), field)
        return math.nan if value is None else value

    def add_gauge(self, name: str, text: str, read: Callable[[], float], *, of_workers: GaugeMode) -> None:
        """Add a gauge.

        Args:
            read: returns the value; called at every scrape, and by `publish_gauges`.
            of_workers: how the values of several worker processes are combined.
        """
        gauge = Gauge(name, text, registry=self._registry, multiprocess_mode=of_workers)
        self._gauges.append((gauge, read))
        if not self.of_several_workers:
            gauge.set_function(read)

    def publish_gauges(self) -> None:
        """Write the values of all gauges to the memory that worker processes share."""
        for i, (gauge, read) in enumerate(self._gauges):
            value = read()
            # The most recent value counts: a worker without images must not hide the value of one that has some.
            if not math.isnan(value) or i not in self._published:
                gauge.set(value)
                self._published.add(i)

    def on_batch(self, points: Sequence[str], answers: Answers, seconds: float) -> None:
        """Count one batch; `points` has the operating point of each image."""
        images = len(answers.exit_N)
        self._batch.observe(images)
        self._engine.observe(seconds)
        for point in dict.fromkeys(points):
            self._images.labels(point).inc(points.count(point))
        self._cost.inc(float(answers.cost_N.sum()))
        for k, count in enumerate(np.bincount(answers.exit_N).tolist()):
            if count:
                self._exits.labels(str(k + 1)).inc(count)
        self.recent.add(points, answers)

    def on_request(self, route: str, status: int, seconds: float) -> None:
        """Count one request; `route` is the path pattern, never a path from a client."""
        self._requests.labels(route, str(status)).inc()
        self._duration.labels(route).observe(seconds)
        if route == "/v1/predict":
            with self._lock:
                self._requests_seen.append((self._clock(), seconds, status))

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format, of all worker processes."""
        if not self.of_several_workers:
            return generate_latest(self._registry)
        self.publish_gauges()
        return generate_latest(registry_of_workers(os.environ[WORKERS_VARIABLE]))

    def traffic(self) -> dict[str, Any]:
        """Return rate and durations of the last prediction requests."""
        with self._lock:
            seen = list(self._requests_seen)
        now = self._clock()
        fresh = [entry for entry in seen if now - entry[0] <= RATE_SECONDS]
        durations = [seconds for _, seconds, status in seen if status == 200]
        # If all requests that are kept are fresh, there were more of them than are kept.
        period = RATE_SECONDS
        if len(fresh) == RECENT_REQUESTS:
            period = max(now - fresh[0][0], 1e-3)
        quantiles = {f"p{q}_ms": 1000.0 * float(np.percentile(durations, q)) if durations else None for q in (50, 95)}
        return {
            "requests_per_second": len(fresh) / period,
            "requests": len(seen),
            "refused": sum(status == 503 for _, _, status in seen),
            **quantiles,
        }
