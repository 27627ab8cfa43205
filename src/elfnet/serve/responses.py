"""What the service says, as JSON."""

# Shapes: N images, E exits, C classes, T of them named
# Shapes: N images, E exits, C classes, K channels, H height, W width

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from elfnet.calibrate.family import Family
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.deploy.backend import Backend
from elfnet.deploy.engine import ABSTAINED, Answers
from elfnet.deploy.model import Model
from elfnet.exits.cost_to_exit import cost_to_exit
from elfnet.exits.policy import Policy, Reading


class TopClass(BaseModel):
    label: str
    probability: float


class PointSeen(BaseModel):
    """The answer that another operating point would give to this image."""

    operating_point: str
    label: str
    confidence: float
    exit: int
    cost: float
    confidence_by_exit: list[float]
    label_by_exit: list[str]


class Explanation(BaseModel):
    points: list[PointSeen]


class ImageAnswer(BaseModel):
    name: str
    label: str | None
    class_index: int | None
    confidence: float
    exit: int
    cost: float
    top: list[TopClass]
    explanation: Explanation | None = None


class PredictAnswer(BaseModel):
    """Answers in the order of the images.

    Attributes:
        milliseconds: from the first byte of the request to here.
        engine_milliseconds: of the batch that this request was computed in.
        batch: images of that batch.
    """

    operating_point: str
    milliseconds: float
    engine_milliseconds: float
    batch: int
    answers: list[ImageAnswer]


class ErrorAnswer(BaseModel):
    error: str


def named_answers(model: Model, names: Sequence[str], answers: Answers, top: int) -> list[ImageAnswer]:
    """One answer an image; exits are counted from 1."""
    # Stable: of equally probable classes the first comes first, as in the answer itself.
    best_NT = np.argsort(-answers.probability_NC, axis=1, kind="stable")[:, :top]
    found = []
    for i, name in enumerate(names):
        index = int(answers.prediction_N[i])
        found.append(
            ImageAnswer(
                name=name,
                label=None if index == ABSTAINED else model.class_names[index],
                class_index=None if index == ABSTAINED else index,
                confidence=float(answers.confidence_N[i]),
                exit=int(answers.exit_N[i]) + 1,
                cost=float(answers.cost_N[i]),
                top=[
                    TopClass(label=model.class_names[c], probability=float(answers.probability_NC[i, c]))
                    for c in best_NT[i]
                ],
            )
        )
    return found


def explanation(model: Model, logits_EC: NDArray[np.float64]) -> Explanation:
    """What every operating point makes of one image, with what each exit says."""
    points = []
    for view in views(model.engine.family, logits_EC):
        labels = [model.class_names[index] for index in view.class_E]
        points.append(
            PointSeen(
                operating_point=view.point.name,
                label=labels[view.exit],
                confidence=float(view.confidence_E[view.exit]),
                exit=view.exit + 1,
                cost=view.cost,
                confidence_by_exit=view.confidence_E.tolist(),
                label_by_exit=labels,
            )
        )
    return Explanation(points=points)


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
