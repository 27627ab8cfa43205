"""What the service says, as JSON."""

# Shapes: N images, E exits, C classes, T of them named

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from elfnet.deploy.engine import ABSTAINED, Answers
from elfnet.deploy.model import Model
from elfnet.serve.every_exit import views


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
