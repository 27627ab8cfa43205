"""GET /v1/model, GET and PUT /v1/operating-point"""

from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Header, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from elfnet.errors import RequestError
from elfnet.serve.access import require_token
from elfnet.serve.answers import ErrorAnswer
from elfnet.serve.body import read_body
from elfnet.serve.refusal import Refusal
from elfnet.serve.running import running_service
from elfnet.serve.service import Service
from elfnet.serve.wording import describe
from elfnet.version import __version__

router = APIRouter()
MOST_BYTES = 10_000
Running = Annotated[Service, Depends(running_service)]


class ChosenPoint(BaseModel):
    """By name, or by budget: the most accurate point within this mean cost."""

    model_config = ConfigDict(extra="forbid", strict=True)
    operating_point: str | None = None
    budget: Annotated[float | None, Field(allow_inf_nan=False)] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.operating_point is None) == (self.budget is None):
            raise ValueError("send operating_point or budget, one of them")
        return self


class PointInForce(BaseModel):
    """The point for requests that ask for none.

    Attributes:
        operating_point: the one chosen.
        now: the one used at this moment; a cheaper one while load is shed.
        shedding: whether that is so.
    """

    operating_point: str
    now: str
    shedding: bool


def point_in_force(service: Service) -> PointInForce:
    chosen, now = service.model.operating_point, service.point_now
    return PointInForce(operating_point=chosen, now=now, shedding=chosen != now)


@router.get("/v1/model", summary="Classes, exits, costs, operating points, limits")
async def model(service: Running) -> dict[str, Any]:
    family, preprocess = service.model.engine.family, service.model.preprocess
    limits = service.settings
    return {
        "name": service.name,
        "elfnet_version": __version__,
        "class_names": list(service.model.class_names),
        "image": {"mode": preprocess.mode, "height": preprocess.height, "width": preprocess.width},
        "exits": family.exits,
        "cost": list(family.cost),
        "head_cost": list(family.head_cost),
        "cost_unit": family.cost_unit,
        "calibration": {"split": family.split, "n": family.n},
        "checkpoint_sha256": family.checkpoint_sha256,
        "operating_points": [point.to_dict() for point in family.points],
        "limits": {
            "body_bytes": limits.max_body_bytes,
            "images": limits.max_images,
            "pixels": limits.max_pixels,
        },
    }


@router.get("/v1/operating-point", summary="The point in force")
async def get_point(service: Running) -> PointInForce:
    return point_in_force(service)


@router.put(
    "/v1/operating-point",
    summary="Change the point for everybody",
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": ChosenPoint.model_json_schema()}}}
    },
    responses={
        401: {"model": ErrorAnswer, "description": "the token is missing or wrong"},
        403: {"model": ErrorAnswer, "description": "the service was started without a token"},
        422: {"model": ErrorAnswer, "description": "an unknown point, or a budget below the cheapest"},
    },
)
async def put_point(
    request: Request, service: Running, authorization: Annotated[str | None, Header()] = None
) -> PointInForce:
    # Who may not change it is refused before anything is read.
    require_token(authorization, service.token)
    with service.admission.admit() as place:
        body = await read_body(request, place, most_bytes=MOST_BYTES, seconds=service.settings.read_seconds)
    try:
        chosen = ChosenPoint.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(*describe(error, ChosenPoint)) from None
    try:
        wanted = chosen.budget if chosen.operating_point is None else chosen.operating_point
        assert wanted is not None
        service.model.set_operating_point(wanted)
    except RequestError as error:
        raise Refusal(422, str(error)) from None
    return point_in_force(service)
