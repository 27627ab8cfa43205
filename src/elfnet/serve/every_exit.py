"""What every exit says about an image, also those that it would not have reached."""

# Shapes: N images, E exits, C classes, K channels, H height, W width

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.deploy.backend import Backend
from elfnet.exits.cost_to_exit import cost_to_exit
from elfnet.exits.policy import Policy, Reading


@dataclass(frozen=True, eq=False)
class PointView:
    """One image at one operating point.

    Attributes:
        class_E: the answer that each exit would give, also those after the one taken.
        confidence_E: in that answer.
        exit: the one taken, from 0.
        cost: of this image.
    """

    point: OperatingPoint
    class_E: NDArray[np.int64]
    confidence_E: NDArray[np.float64]
    exit: int
    cost: float


def logits_of_every_exit(backend: Backend, images_NKHW: NDArray[np.float32]) -> NDArray[np.float64]:
    """Run all stages and all heads: logits (E, N, C)."""
    features = backend.start(images_NKHW)
    logits = []
    for k in range(backend.exits):
        features, logits_NC = backend.run(k, features)
        logits.append(np.asarray(logits_NC, dtype=np.float64))
    return np.stack(logits)


def views(family: Family, logits_EC: NDArray[np.float64]) -> list[PointView]:
    """What every operating point makes of the logits of one image."""
    said: dict[Reading, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    found = []
    for point in family.points:
        policy = point.policy
        # Points differ in their thresholds, but rarely in how they make a confidence of the logits.
        key = policy.reading
        if key not in said:
            said[key] = _said_by_every_exit(policy, logits_EC)
        class_E, confidence_E = said[key]
        taken = int(policy.first_exit(confidence_E[None])[0])
        cost = float(cost_to_exit(family.cost, family.head_cost, policy)[taken])
        found.append(PointView(point, class_E, confidence_E, taken, cost))
    return found


def _said_by_every_exit(
    policy: Policy, logits_EC: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    evidence_1C = None
    class_E = np.empty(len(logits_EC), dtype=np.int64)
    confidence_E = np.empty(len(logits_EC), dtype=np.float64)
    for k, logits_C in enumerate(logits_EC):
        decision = policy.decide(k, logits_C[None], evidence_1C)
        evidence_1C = decision.evidence_NC
        class_E[k], confidence_E[k] = decision.prediction_N[0], decision.confidence_N[0]
    return class_E, confidence_E
