"""Figures for Prometheus, and the same in short for the page."""

# Shapes: N answers in the window, E exits

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from elfnet.calibrate.family import Family
from elfnet.deploy.engine import Answers

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


WINDOW = 2048
FEWEST = 100
"""Answers before drift is spoken of; with fewer it is mostly noise."""


@dataclass(frozen=True, kw_only=True)
class RecentAnswers:
    """Figures over the last answers, at most `WINDOW`; None where there are none, or too few.

    Attributes:
        images: how many answers these are.
        exit_share: seen, of each exit.
        expected_share: of the same operating points on the calibration split, mixed as the answers were.
        mean_cost: seen.
        expected_cost: on the calibration split, mixed alike.
        mean_confidence: seen, at the exit taken.
        exit_drift: population stability index of the exit shares.
        confidence_drift: mean confidence minus the accuracy on the calibration split.
    """

    images: int
    exit_share: tuple[float, ...] | None
    expected_share: tuple[float, ...] | None
    mean_cost: float | None
    expected_cost: float | None
    mean_confidence: float | None
    exit_drift: float | None
    confidence_drift: float | None


class Recent:
    """A window of answers; the engine's thread adds, any thread asks."""

    def __init__(self, family: Family, *, window: int = WINDOW) -> None:
        self._family = family
        self._position = {point.name: i for i, point in enumerate(family.points)}
        self._answers: deque[tuple[int, int, float, float]] = deque(maxlen=window)
        self._lock = threading.Lock()

    def add(self, point: str, answers: Answers) -> None:
        position = self._position[point]
        rows = zip(answers.exit_N.tolist(), answers.confidence_N.tolist(), answers.cost_N.tolist(), strict=True)
        with self._lock:
            self._answers.extend((position, exit_taken, confidence, cost) for exit_taken, confidence, cost in rows)

    def figures(self) -> RecentAnswers:
        with self._lock:
            answers = list(self._answers)
        if not answers:
            return RecentAnswers(
                images=0,
                exit_share=None,
                expected_share=None,
                mean_cost=None,
                expected_cost=None,
                mean_confidence=None,
                exit_drift=None,
                confidence_drift=None,
            )
        point_N, exit_N, confidence_N, cost_N = (np.array(column) for column in zip(*answers, strict=True))
        used, count = np.unique(point_N.astype(np.int64), return_counts=True)
        expected = [self._family.points[i].expected for i in used]
        weight = count / len(answers)
        seen_E = np.bincount(exit_N.astype(np.int64), minlength=self._family.exits)
        expected_E = sum(w * np.asarray(e.exit_share) for w, e in zip(weight, expected, strict=True))
        accuracy = float(sum(w * e.accuracy for w, e in zip(weight, expected, strict=True)))
        mean_confidence = float(np.mean(confidence_N))
        enough = len(answers) >= FEWEST
        return RecentAnswers(
            images=len(answers),
            exit_share=tuple((seen_E / len(answers)).tolist()),
            expected_share=tuple(np.asarray(expected_E).tolist()),
            mean_cost=float(np.mean(cost_N)),
            expected_cost=float(sum(w * e.mean_cost for w, e in zip(weight, expected, strict=True))),
            mean_confidence=mean_confidence,
            exit_drift=stability_index(seen_E, np.asarray(expected_E), self._family.n) if enough else None,
            confidence_drift=mean_confidence - accuracy if enough else None,
        )


def stability_index(seen_E: NDArray[np.int64], expected_E: NDArray[np.float64], calibrated_on: int) -> float:
    """Sum over exits of (p - q) ln(p / q), with p the shares seen and q those on the calibration split.

    Half an example is added to every exit on both sides, so that an empty one gives a finite figure. By custom 0.1 is
    worth a look and 0.25 a change.
    """
    p_E = (seen_E + 0.5) / (seen_E.sum() + 0.5 * len(seen_E))
    q_E = (expected_E * calibrated_on + 0.5) / (calibrated_on + 0.5 * len(expected_E))
    return math.fsum((p_E - q_E) * np.log(p_E / q_E))
