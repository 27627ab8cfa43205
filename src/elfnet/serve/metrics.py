"""Figures for Prometheus, and the same in short for the page."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from elfnet.calibrate.family import Family
from elfnet.deploy.engine import Answers
from elfnet.serve.recent import Recent

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REMEMBERED = 1024
"""Requests whose durations and times are kept for the page."""

RATE_SECONDS = 10.0


class Metrics:
    """All figures of one service, in a registry of its own.

    Args:
        family: for exits and what calibration promised.
        clock: seconds.
    """

    def __init__(self, family: Family, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.registry = CollectorRegistry()
        self.recent = Recent(family)
        given: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("elfnet_requests", "Requests answered.", ("route", "status"), **given)
        self._duration = Histogram(
            "elfnet_request_seconds", "From the first byte to the answer.", ("route",), buckets=SECONDS, **given
        )
        self._images = Counter("elfnet_images", "Images answered.", ("operating_point",), **given)
        self._exits = Counter("elfnet_exit_images", "Images that left at an exit (from 1).", ("exit",), **given)
        self._cost = Counter("elfnet_cost", "Sum of the costs of all images answered.", **given)
        self._batch = Histogram("elfnet_batch_images", "Images of one call of the engine.", buckets=BATCHES, **given)
        self._engine = Histogram("elfnet_engine_seconds", "Of one call of the engine.", buckets=SECONDS, **given)
        for k in range(family.exits):
            self._exits.labels(str(k + 1))
        self._watch_recent(given)
        self._remembered: deque[tuple[float, float, int]] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()
        self._given = given

    def _watch_recent(self, given: dict[str, Any]) -> None:
        of_last = "of the last 2048 images; NaN before there are enough."
        for name, what, field in (
            ("elfnet_mean_cost", "Mean cost", "mean_cost"),
            ("elfnet_mean_cost_expected", "Mean cost expected by calibration", "expected_cost"),
            ("elfnet_mean_confidence", "Mean confidence", "mean_confidence"),
            ("elfnet_exit_drift", "Population stability index of the exit shares against calibration", "exit_drift"),
            ("elfnet_confidence_drift", "Mean confidence minus accuracy on the calibration split", "confidence_drift"),
        ):
            gauge = Gauge(name, f"{what} {of_last}", **given)
            gauge.set_function(partial(self._recent_figure, field))

    def _recent_figure(self, field: str) -> float:
        value: float | None = getattr(self.recent.figures(), field)
        return math.nan if value is None else value

    def watch(self, name: str, what: str, read: Callable[[], float]) -> None:
        """A gauge that is read when somebody asks."""
        Gauge(name, what, **self._given).set_function(read)

    def on_batch(self, point: str, answers: Answers, seconds: float) -> None:
        """The engine's thread reports a call."""
        images = len(answers.exit_N)
        self._batch.observe(images)
        self._engine.observe(seconds)
        self._images.labels(point).inc(images)
        self._cost.inc(float(answers.cost_N.sum()))
        for k, count in enumerate(np.bincount(answers.exit_N).tolist()):
            if count:
                self._exits.labels(str(k + 1)).inc(count)
        self.recent.add(point, answers)

    def on_request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the pattern, never what the client wrote."""
        self._requests.labels(route, str(status)).inc()
        self._duration.labels(route).observe(seconds)
        if route == "/v1/predict":
            with self._lock:
                self._remembered.append((self._clock(), seconds, status))

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)

    def traffic(self) -> dict[str, Any]:
        """Rates and durations of the last predictions, for people."""
        with self._lock:
            remembered = list(self._remembered)
        now = self._clock()
        fresh = [entry for entry in remembered if now - entry[0] <= RATE_SECONDS]
        good = [seconds for _, seconds, status in remembered if status == 200]
        # A full window that is younger than the period tells the rate by itself.
        period = RATE_SECONDS
        if len(fresh) == REMEMBERED:
            period = max(now - fresh[0][0], 1e-3)
        quantile = {f"p{q}_ms": 1000.0 * float(np.percentile(good, q)) if good else None for q in (50, 95)}
        return {
            "requests_per_second": len(fresh) / period,
            "requests": len(remembered),
            "refused": sum(status == 503 for _, _, status in remembered),
            **quantile,
        }
