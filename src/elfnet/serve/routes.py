"""GET /v1/model, GET and PUT /v1/operating-point"""

import hmac
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from elfnet.errors import RequestError, WorkError
from elfnet.serve.admission import read_body
from elfnet.serve.errors import Refusal, describe
from elfnet.serve.responses import ErrorAnswer
from elfnet.serve.service import Service, running_service
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


@router.get("/healthz", summary="The process is alive")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="Requests are answered")
async def readyz(service: Running) -> Response:
    if not service.batcher.ready:
        return JSONResponse({"error": "the engine is not running"}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
async def metrics(service: Running) -> Response:
    return Response(service.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/traffic", summary="Recent figures in short")
async def traffic(service: Running) -> dict[str, Any]:
    return {
        **service.metrics.traffic(),
        "queue": service.batcher.waiting,
        "queue_limit": service.settings.max_queue,
        **point_in_force(service).model_dump(),
        "recent": asdict(service.metrics.recent.figures()),
    }


@router.get("/v1/samples", summary="Images to try")
async def samples(service: Running) -> list[dict[str, str]]:
    return [{"name": sample.name, "url": f"/v1/samples/{i}"} for i, sample in enumerate(service.samples)]


@router.get("/v1/samples/{number}", summary="One of them", response_class=Response)
async def sample(service: Running, number: int) -> Response:
    if not 0 <= number < len(service.samples):
        raise Refusal(404, f"there is no sample {number}")
    found = service.samples[number]
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": "max-age=3600"})


PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.suffix in TYPES}


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return await page_file("index.html")


@router.get("/page/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    if name not in FILES:
        raise Refusal(404, "there is nothing here; see /openapi.json")
    return Response(FILES[name], media_type=TYPES[Path(name).suffix], headers={"Cache-Control": "no-cache"})


VARIABLE = "ELFNET_TOKEN"


def find_token(file: Path | None) -> str | None:
    """From a file, else from the environment; None if there is none."""
    if file is None:
        return os.environ.get(VARIABLE, "").strip() or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot read the token in {file}: {getattr(error, 'strerror', None) or error}") from error
    if not token:
        raise RequestError(f"{file} holds no token; write one line into it")
    return token


def require_token(authorization: str | None, token: str | None) -> None:
    """Refuse anybody who does not send `Authorization: Bearer TOKEN`; everybody, if there is no token."""
    if token is None:
        raise Refusal(
            403, f"the operating point cannot be changed here; start the service with {VARIABLE} or --token-file"
        )
    kind, _, given = (authorization or "").partition(" ")
    # Servers read headers as Latin-1; the bytes are those of the token's UTF-8.
    # In constant time: how long a comparison takes must not tell how much of the token was right.
    same = hmac.compare_digest(given.strip(" ").encode("latin-1"), token.encode())
    if kind.lower() != "bearer" or not same:
        raise Refusal(
            401, "the token is missing or wrong; send 'Authorization: Bearer TOKEN'", WWW_Authenticate="Bearer"
        )
