"""The ASGI application: middleware, lifespan, and all routes except predict."""

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from elfnet.errors import RequestError, WorkError
from elfnet.serve import predict
from elfnet.serve.admission import read_body
from elfnet.serve.errors import (
    NOT_FOUND,
    ApiError,
    add_exception_handlers,
    describe_validation_error,
)
from elfnet.serve.middleware import HostMiddleware, OriginMiddleware, ResponseMiddleware
from elfnet.serve.requests import Budget
from elfnet.serve.responses import ModelInfo, error_responses
from elfnet.serve.service import Service, get_service
from elfnet.version import __version__

TOKEN_VARIABLE = "ELFNET_TOKEN"
MAX_POINT_BODY_BYTES = 10_000
PAGE = Path(__file__).parent / "page"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGE_FILES = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.suffix in MEDIA_TYPES}
"""Read once at import: a path from a request never reaches the file system."""

router = APIRouter()
ServiceDependency = Annotated[Service, Depends(get_service)]


def create_app(service: Service) -> FastAPI:
    """Create the ASGI application for one service, which it starts and closes."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            service.close()

    middleware = _middleware(service)
    # FastAPI's interactive documentation loads scripts from another host; /openapi.json has the same content.
    app = ServiceApp(
        predict_app=_wrap(predict.PredictApp(service), middleware),
        title="elfnet",
        version=__version__,
        description="Image classification with early exits: each request can set its own compute budget.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        middleware=middleware,
        # Every route can give these, from the HTTP server or the middleware.
        responses=error_responses(400, 408, 421, 431, 500, 503),
    )
    app.state.service = service
    app.include_router(predict.router)
    app.include_router(router)
    add_exception_handlers(app, [*predict.router.routes, *router.routes])
    return app


def _middleware(service: Service) -> list[Middleware]:
    """Return the middleware of every request, from the outermost to the innermost."""
    outer = [Middleware(kind, service=service) for kind in (ResponseMiddleware, HostMiddleware, OriginMiddleware)]
    if not service.settings.allowed_origins:
        return outer
    cors = Middleware(
        CORSMiddleware,
        allow_origins=service.settings.allowed_origins,
        allow_methods=("GET", "POST", "PUT"),
        allow_headers=("authorization", "content-type"),
    )
    return [*outer, cors]


def _wrap(app: ASGIApp, middleware: Sequence[Middleware]) -> ASGIApp:
    for outer in reversed(middleware):
        app = outer.cls(app, *outer.args, **outer.kwargs)
    return app


class ServiceApp(FastAPI):
    """FastAPI, but prediction requests go past its router and its own middleware, which take longer than parsing them.

    The route is registered in the router too, for OpenAPI and for the 405 response to other methods.

    Args:
        predict_app: handles prediction requests, with the same middleware as the other routes.
        options: of `FastAPI`.
    """

    def __init__(self, *, predict_app: ASGIApp, **options: Any) -> None:
        super().__init__(**options)
        self._predict_app = predict_app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == predict.PREDICT_ROUTE.path and scope["method"] == "POST":
            await self._predict_app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def read_token(file: Path | None) -> str | None:
    """Read the token from a file, or from the environment variable `ELFNET_TOKEN`; None if there is none.

    Raises:
        WorkError: if the file cannot be read.
        RequestError: if the file is empty.
    """
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip() or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot read the token in {file}: {getattr(error, 'strerror', None) or error}") from error
    if not token:
        raise RequestError(f"{file} has no token; write the token into its first line")
    return token


def check_token(authorization: str | None, token: str | None) -> None:
    """Check the header `Authorization: Bearer TOKEN`.

    Raises:
        ApiError: 401 if the token is missing or wrong, 403 if the service has no token.
    """
    if token is None:
        raise ApiError(
            403,
            "this service has no token, so the operating point cannot be changed; "
            f"start it with {TOKEN_VARIABLE} or --token-file",
        )
    scheme, _, credentials = (authorization or "").partition(" ")
    # Header values are decoded as Latin-1, so this restores the bytes that were sent. The comparison takes the same
    # time whether the token is nearly right or not.
    equal = hmac.compare_digest(credentials.strip(" ").encode("latin-1"), token.encode())
    if scheme.lower() != "bearer" or not equal:
        raise ApiError(
            401, "the token is missing or wrong; send 'Authorization: Bearer TOKEN'", WWW_Authenticate="Bearer"
        )


@router.get("/v1/model", response_model=ModelInfo, summary="Classes, exits, costs, operating points, limits")
async def get_model(service: ServiceDependency) -> Response:
    """Describe the model, its operating points with their calibration results, and the limits of a request."""
    return Response(service.model_info, media_type="application/json")


class OperatingPointBody(BaseModel):
    """An operating point by name, or by budget: the most accurate point within a mean cost, or a time such as 5ms."""

    model_config = ConfigDict(extra="forbid", strict=True)
    operating_point: str | None = None
    budget: Budget | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.operating_point is None) == (self.budget is None):
            raise ValueError("send either operating_point or budget")
        return self


class OperatingPointResponse(BaseModel):
    """The operating point of requests that name none.

    Attributes:
        operating_point: the point that was set.
        now: the point in use; a cheaper one while the service sheds load.
        shedding: whether the service sheds load.
    """

    operating_point: str
    now: str
    shedding: bool


def _current_point(service: Service) -> OperatingPointResponse:
    point, now = service.operating_point, service.current_point
    return OperatingPointResponse(operating_point=point, now=now, shedding=point != now)


@router.get("/v1/operating-point", summary="The operating point in use")
async def get_point(service: ServiceDependency) -> OperatingPointResponse:
    """Return the operating point of requests that name none."""
    return _current_point(service)


@router.put(
    "/v1/operating-point",
    summary="Set the operating point",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": OperatingPointBody.model_json_schema()}},
        }
    },
    responses=error_responses(401, 403, 413, 422),
)
async def put_point(
    request: Request, service: ServiceDependency, authorization: Annotated[str | None, Header()] = None
) -> OperatingPointResponse:
    """Set the operating point of all requests that name none."""
    # Checked before the body is read.
    check_token(authorization, service.token)
    with service.admission.admit() as slot:
        body = await read_body(
            request.scope, request.receive, slot, max_bytes=MAX_POINT_BODY_BYTES, timeout=service.settings.read_seconds
        )
    try:
        parsed = OperatingPointBody.model_validate_json(body)
    except ValidationError as error:
        raise ApiError(*describe_validation_error(error, OperatingPointBody)) from None
    point = parsed.budget if parsed.operating_point is None else parsed.operating_point
    assert point is not None
    try:
        service.set_operating_point(point)
    except RequestError as error:
        raise ApiError(422, str(error)) from None
    return _current_point(service)


@router.get("/healthz", summary="Liveness")
async def healthz() -> dict[str, str]:
    """Respond while the process is alive."""
    return {"status": "ok"}


@router.get("/readyz", summary="Readiness")
async def readyz(service: ServiceDependency) -> Response:
    """Respond with 200 while prediction requests are accepted."""
    if not service.batcher.ready:
        return JSONResponse({"error": "the engine is not running"}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", summary="Prometheus metrics", response_class=Response, responses=error_responses(404))
async def metrics(service: ServiceDependency) -> Response:
    """Return all metrics in Prometheus' text format; 404 if they have a port of their own."""
    if not service.settings.metrics_route:
        raise ApiError(404, NOT_FOUND)
    return Response(service.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/traffic", summary="Recent traffic")
async def traffic(service: ServiceDependency) -> dict[str, Any]:
    """Return rate, durations, queue and drift of the last requests, for the web page."""
    return {
        **service.metrics.traffic(),
        "queue": service.batcher.waiting,
        "queue_limit": service.settings.max_queue,
        **_current_point(service).model_dump(),
        "recent": asdict(service.metrics.recent.stats()),
    }


@router.get("/v1/samples", summary="Sample images")
async def samples(service: ServiceDependency) -> list[dict[str, str]]:
    """List the sample images of the web page."""
    return [{"name": sample.name, "url": f"/v1/samples/{i}"} for i, sample in enumerate(service.samples)]


@router.get(
    "/v1/samples/{number}", summary="One sample image", response_class=Response, responses=error_responses(404, 422)
)
async def sample(service: ServiceDependency, number: int) -> Response:
    """Return the file of one sample image."""
    if not 0 <= number < len(service.samples):
        raise ApiError(404, f"there is no sample {number}; /v1/samples lists them")
    found = service.samples[number]
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": "max-age=3600"})


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the web page."""
    return await page_file("index.html")


@router.get("/page/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    """Return one file of the web page."""
    if name not in PAGE_FILES:
        raise ApiError(404, NOT_FOUND)
    return Response(PAGE_FILES[name], media_type=MEDIA_TYPES[Path(name).suffix], headers={"Cache-Control": "no-cache"})
