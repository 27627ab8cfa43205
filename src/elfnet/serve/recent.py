"""The last answers, and how far they are from what calibration promised. No labels are needed."""

# Shapes: N answers in the window, E exits

import math
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.deploy.engine import Answers

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
