"""Health, metrics, and the page's own figures and samples."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from elfnet.serve.model_routes import point_in_force
from elfnet.serve.refusal import Refusal
from elfnet.serve.running import running_service
from elfnet.serve.service import Service

router = APIRouter()
Running = Annotated[Service, Depends(running_service)]


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
