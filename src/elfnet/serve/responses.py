"""The JSON responses of the service, and how they are made from predictions."""

# Shapes: N images, E exits, C classes, T of them named

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from elfnet.exits.policy import ConfidenceSpec, Policy, cost_to_exit
from elfnet.inference.engine import ABSTAINED, Answers
from elfnet.inference.model import Model
from elfnet.version import __version__


class TopClass(BaseModel):
    """One of the most probable classes."""

    label: str
    probability: float


class PointResult(BaseModel):
    """The prediction for an image at one operating point.

    Attributes:
        exit: the exit taken, from 1.
        cost: relative to the plain backbone.
        confidence_by_exit: confidence at every exit, also at those after the exit taken.
        label_by_exit: prediction at every exit.
    """

    operating_point: str
    label: str
    confidence: float
    exit: int
    cost: float
    confidence_by_exit: list[float]
    label_by_exit: list[str]


class Explanation(BaseModel):
    """The prediction for an image at every operating point."""

    points: list[PointResult]


class ImageResult(BaseModel):
    """The prediction for one image.

    Attributes:
        name: the name of the image in the request.
        label: None if the model abstained.
        class_index: from 0; None if the model abstained.
        exit: the exit taken, from 1.
        cost: relative to the plain backbone.
        top: the most probable classes, best first.
        explanation: only if the request sets `explain`.
    """

    name: str
    label: str | None
    class_index: int | None
    confidence: float
    exit: int
    cost: float
    top: list[TopClass]
    explanation: Explanation | None = None


class PredictResponse(BaseModel):
    """The response to a prediction request.

    Attributes:
        operating_point: the operating point that was used.
        milliseconds: from the start of the request until this response.
        engine_milliseconds: duration of the engine call that computed this request.
        batch: images of that call, including those of other requests.
        answers: one result per image, in the order of the request.
    """

    operating_point: str
    milliseconds: float
    engine_milliseconds: float
    batch: int
    answers: list[ImageResult]


class RequestLimits(BaseModel):
    """Limits of one prediction request.

    Attributes:
        pixels: pixels per image.
        request_pixels: pixels of all images.
    """

    body_bytes: int
    images: int
    pixels: int
    request_pixels: int


class ModelInfo(BaseModel):
    """The model, its operating points and the limits of a request.

    Attributes:
        image: mode ("L" or "RGB"), height and width of the network's input.
        exits: number of exits.
        cost: cost up to and including each exit.
        head_cost: cost of the head at each exit; included in `cost`.
        calibration: the split on which the operating points were measured, and its number of images.
        operating_points: thresholds and calibration results of every point; `milliseconds` is the mean time per image
            on this machine, one image at a time, or None if it was not measured.
        timing: how the times were measured; None if they were not.
    """

    name: str
    elfnet_version: str
    class_names: list[str]
    image: dict[str, str | int]
    exits: int
    cost: list[float]
    head_cost: list[float]
    cost_unit: str
    calibration: dict[str, str | int]
    checkpoint_sha256: str
    operating_points: list[dict[str, Any]]
    timing: str | None
    limits: RequestLimits


class ErrorResponse(BaseModel):
    """The response to a request that was refused: a message of one line."""

    error: str


ERRORS = {
    400: "the request is not valid HTTP, JSON, multipart or base64, or has no image",
    401: "the token is missing or wrong",
    403: "the service was started without a token",
    404: "there is no such resource",
    408: "the request took too long to arrive",
    413: "too many bytes, images or pixels",
    415: "unsupported content type",
    421: "the Host header names a host that is not allowed",
    422: "invalid field or value, unknown operating point, or not an image",
    431: "the header is too large",
    500: "internal error",
    503: "overloaded or shutting down; the header Retry-After has the seconds to wait",
}
"""Every error status of the service, with its description in OpenAPI."""


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe error responses for the argument `responses` of a FastAPI route."""
    return {status: {"model": ErrorResponse, "description": ERRORS[status]} for status in statuses}


def model_info(model: Model, name: str, limits: RequestLimits) -> ModelInfo:
    """Describe a model."""
    family, preprocess, times = model.engine.family, model.preprocess, model.times
    points = [
        {
            **point.to_dict(),
            "milliseconds": None if times is None else times.milliseconds(point.policy, point.expected.exit_share),
        }
        for point in family.points
    ]
    return ModelInfo(
        name=name,
        elfnet_version=__version__,
        class_names=list(model.class_names),
        image={"mode": preprocess.mode, "height": preprocess.height, "width": preprocess.width},
        exits=family.exits,
        cost=list(family.cost),
        head_cost=list(family.head_cost),
        cost_unit=family.cost_unit,
        calibration={"split": family.split, "n": family.n},
        checkpoint_sha256=family.checkpoint_sha256,
        operating_points=points,
        timing=None if times is None else times.how,
        limits=limits,
    )


def image_results(model: Model, names: Sequence[str], answers: Answers, top: int) -> list[dict[str, Any]]:
    """Return the fields of one `ImageResult` per image, with the `top` most probable classes."""
    # A stable sort keeps the order of equally probable classes, so that the first is the prediction.
    best_NT = np.argsort(-answers.probability_NC, axis=1, kind="stable")[:, :top]
    results = []
    for i, name in enumerate(names):
        index, probability_T = int(answers.prediction_N[i]), answers.probability_NC[i, best_NT[i]]
        results.append(
            {
                "name": name,
                "label": None if index == ABSTAINED else model.class_names[index],
                "class_index": None if index == ABSTAINED else index,
                "confidence": float(answers.confidence_N[i]),
                "exit": int(answers.exit_N[i]) + 1,
                "cost": float(answers.cost_N[i]),
                "top": [
                    {"label": model.class_names[c], "probability": probability}
                    for c, probability in zip(best_NT[i].tolist(), probability_T.tolist(), strict=True)
                ],
                "explanation": None,
            }
        )
    return results


def explain(model: Model, logits_EC: NDArray[np.float64]) -> Explanation:
    """Return what every operating point predicts for one image, given the logits of every exit."""
    family = model.engine.family
    by_reading: dict[ConfidenceSpec, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    results = []
    for point in family.points:
        policy = point.policy
        # Points differ in their thresholds, but rarely in how they compute a confidence from logits.
        if policy.reading not in by_reading:
            by_reading[policy.reading] = _predict_at_every_exit(policy, logits_EC)
        class_E, confidence_E = by_reading[policy.reading]
        taken = int(policy.first_exit(confidence_E[None])[0])
        labels = [model.class_names[index] for index in class_E]
        results.append(
            PointResult(
                operating_point=point.name,
                label=labels[taken],
                confidence=float(confidence_E[taken]),
                exit=taken + 1,
                cost=float(cost_to_exit(family.cost, family.head_cost, policy)[taken]),
                confidence_by_exit=confidence_E.tolist(),
                label_by_exit=labels,
            )
        )
    return Explanation(points=results)


def _predict_at_every_exit(
    policy: Policy, logits_EC: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return class and confidence at every exit."""
    evidence_1C = None
    class_E = np.empty(len(logits_EC), dtype=np.int64)
    confidence_E = np.empty(len(logits_EC), dtype=np.float64)
    for k, logits_C in enumerate(logits_EC):
        decision = policy.decide(k, logits_C[None], evidence_1C)
        evidence_1C = decision.evidence_NC
        class_E[k], confidence_E[k] = decision.prediction_N[0], decision.confidence_N[0]
    return class_E, confidence_E
