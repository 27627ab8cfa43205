"""POST /v1/predict"""

# Shapes: N images, H height, W width, K channels
# Shapes: H height, W width, K channels

import asyncio
import re
import time
from io import BytesIO
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from numpy.typing import NDArray
from PIL import Image

from elfnet.data.read_image import FORMATS
from elfnet.deploy.images.preprocess import Preprocess
from elfnet.errors import RequestError, WorkError
from elfnet.serve.admission import read_body
from elfnet.serve.batcher import Batched
from elfnet.serve.errors import Refusal
from elfnet.serve.requests import Asked, PredictJson, Upload, read_asked
from elfnet.serve.responses import ErrorAnswer, PredictAnswer, explanation, named_answers
from elfnet.serve.service import Service, running_service

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


SMALL_BODY, FEW_PIXELS = 65_536, 128 * 128
"""Up to here the event loop does the work itself: for a small image, going to another thread and back takes as long."""

Opened = tuple[Asked, list[Image.Image]]


async def prepare(service: Service, content_type: str, body: bytes) -> tuple[Asked, NDArray[np.uint8]]:
    """What is asked, and the images, uint8 (N, H, W, K)."""
    loop = asyncio.get_running_loop()
    if len(body) <= SMALL_BODY:
        asked, pictures = _open(service, content_type, body)
        # A few bytes can be many pixels.
        if sum(picture.width * picture.height for picture in pictures) <= FEW_PIXELS:
            return asked, _decode(service, asked, pictures)
    else:
        asked, pictures = await loop.run_in_executor(service.decoders, _open, service, content_type, body)
    return asked, await loop.run_in_executor(service.decoders, _decode, service, asked, pictures)


def _open(service: Service, content_type: str, body: bytes) -> Opened:
    asked = read_asked(content_type, body, most_images=service.settings.max_images)
    _require_point(service, asked.point)
    return asked, [open_upload(upload, most_pixels=service.settings.max_pixels) for upload in asked.uploads]


def _decode(service: Service, asked: Asked, pictures: list[Image.Image]) -> NDArray[np.uint8]:
    pixels_NHWK = np.empty((len(pictures), *service.model.preprocess.shape), dtype=np.uint8)
    for i, (upload, picture) in enumerate(zip(asked.uploads, pictures, strict=True)):
        with picture:
            pixels_NHWK[i] = decode(picture, upload.name, service.model.preprocess)
    return pixels_NHWK


def _require_point(service: Service, point: str | float | None) -> None:
    family = service.model.engine.family
    try:
        if isinstance(point, str):
            family.point(point)
        elif point is not None:
            family.for_budget(point)
    except RequestError as error:
        raise Refusal(422, str(error)) from None


def open_upload(upload: Upload, *, most_pixels: int) -> Image.Image:
    """An image of which only the header was read; 422 or 413 with its name."""
    name = upload.name
    if not upload.content:
        raise Refusal(422, f"{name} is empty; send an image file")
    try:
        picture = Image.open(BytesIO(upload.content), formats=FORMATS)
    except Image.DecompressionBombError:
        raise Refusal(413, f"{name} has more than {most_pixels:,} pixels; make it smaller") from None
    except Exception:
        raise Refusal(422, f"{name} is not an image or is damaged; send one of: {', '.join(FORMATS)}") from None
    width, height = picture.size
    if width * height > most_pixels:
        raise Refusal(413, f"{name} has {width} x {height} pixels, the limit is {most_pixels:,}; make it smaller")
    return picture


def decode(picture: Image.Image, name: str, preprocess: Preprocess) -> NDArray[np.uint8]:
    """Pixels as `Model.predict` makes them of a picture, uint8 (H, W, K); 422 with the image's name."""
    try:
        return preprocess.pixels(picture)
    except WorkError as error:
        raise Refusal(422, re.sub(r"\bthe picture\b", lambda _: name, str(error), count=1)) from None
