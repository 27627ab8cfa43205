"""POST /v1/predict"""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute

from elfnet.serve.answers import ErrorAnswer, PredictAnswer, explanation, named_answers
from elfnet.serve.asked import PredictJson
from elfnet.serve.batcher import Batched
from elfnet.serve.body import read_body
from elfnet.serve.prepare import prepare
from elfnet.serve.running import running_service
from elfnet.serve.service import Service

router = APIRouter()

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "not JSON, not a form, no image, or not base64"},
    408: {"model": ErrorAnswer, "description": "the request took too long to arrive"},
    413: {"model": ErrorAnswer, "description": "too many bytes, pixels or images"},
    415: {"model": ErrorAnswer, "description": "another content type"},
    422: {"model": ErrorAnswer, "description": "not an image, or an unknown operating point"},
    503: {"model": ErrorAnswer, "description": "overloaded; Retry-After says when to come back"},
}
_FORM = {
    "type": "object",
    "required": ["image"],
    "properties": {
        "image": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "operating_point": {"type": "string"},
        "budget": {"type": "number"},
        "top": {"type": "integer", "minimum": 1, "default": 5},
        "explain": {"type": "boolean", "default": False},
    },
}


def _json_schema() -> dict[str, Any]:
    """Of the JSON body, in one piece: what stands under `$defs` would not be found from inside a larger document."""
    schema = PredictJson.model_json_schema()
    parts = schema.pop("$defs")
    choices = schema["properties"]["images"]["items"]["anyOf"]
    schema["properties"]["images"]["items"]["anyOf"] = [
        parts[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice for choice in choices
    ]
    return schema


# The body is read by hand, within limits, so the description is written by hand as well.
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM},
            "application/json": {"schema": _json_schema()},
        },
    }
}


@router.post(
    "/v1/predict", response_model=PredictAnswer, responses=REFUSALS, openapi_extra=_BODY, summary="Classify images"
)
async def predict(request: Request, service: Annotated[Service, Depends(running_service)]) -> Response:
    """Classify one or many images, at the operating point in force or at one of the request's own."""
    began = time.perf_counter()
    limits = service.settings
    with service.admission.admit() as place:
        body = await read_body(request, place, most_bytes=limits.max_body_bytes, seconds=limits.read_seconds)
        asked, pixels_NHWK = await prepare(service, request.headers.get("content-type", ""), body)
        loop = asyncio.get_running_loop()
        promised: asyncio.Future[Batched] = loop.create_future()
        service.batcher.submit(promised, pixels_NHWK, asked.point, every_exit=asked.explain)
        done = await promised
        answers = named_answers(service.model, [upload.name for upload in asked.uploads], done.answers, asked.top)
        if done.logits_EC is not None:
            every_point = loop.run_in_executor(service.decoders, explanation, service.model, done.logits_EC)
            answers[0].explanation = await every_point
    answer = PredictAnswer(
        operating_point=done.point,
        milliseconds=1000.0 * (time.perf_counter() - began),
        engine_milliseconds=done.engine_ms,
        batch=done.batch,
        answers=answers,
    )
    # Made here: FastAPI would validate the answer once more.
    return Response(answer.model_dump_json(), media_type="application/json")


PREDICT = next(route for route in router.routes if isinstance(route, APIRoute))
