"""POST /v1/predict: read and parse the request, decode its images, compute, respond."""

# Shapes: N images, H height, W width, K channels

import asyncio
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from numpy.typing import NDArray
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from elfnet.data.images.decode import Limits, OpenImage, TooManyPixelsError, UnreadableImageError, open_image
from elfnet.errors import RequestError, WorkError
from elfnet.inference.preprocess import Preprocess
from elfnet.serve.admission import Slot, header, read_body
from elfnet.serve.batcher import BatchResult
from elfnet.serve.errors import ApiError, api_error_response, overloaded, too_large
from elfnet.serve.requests import BUDGET_DESCRIPTION, PredictBody, PredictRequest, Upload, parse_request
from elfnet.serve.responses import PredictResponse, error_responses, explain, image_results
from elfnet.serve.service import Service, get_service

SMALL_BODY_BYTES, SMALL_PIXELS = 65_536, 128 * 128
"""Up to these sizes the event loop parses and decodes itself: using another thread would take as long."""

router = APIRouter()

_FORM_SCHEMA = {
    "type": "object",
    "required": ["image"],
    "properties": {
        "image": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}},
        "operating_point": {"type": "string"},
        "budget": {"type": "string", "description": BUDGET_DESCRIPTION},
        "top": {"type": "integer", "minimum": 1, "default": 5},
        "explain": {"type": "boolean", "default": False},
    },
}


def _json_schema() -> dict[str, Any]:
    """Return the schema of the JSON body without `$defs`, whose references do not resolve inside OpenAPI."""
    schema = PredictBody.model_json_schema()
    definitions = schema.pop("$defs")
    choices = schema["properties"]["images"]["items"]["anyOf"]
    schema["properties"]["images"]["items"]["anyOf"] = [
        definitions[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice for choice in choices
    ]
    return schema


# The route reads the body itself, within limits, so FastAPI cannot derive this part of OpenAPI.
_REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM_SCHEMA},
            "application/json": {"schema": _json_schema()},
        },
    }
}


@router.post(
    "/v1/predict",
    response_model=PredictResponse,
    responses=error_responses(403, 413, 415, 422),
    openapi_extra=_REQUEST_BODY,
    summary="Classify images",
)
async def predict(request: Request, service: Annotated[Service, Depends(get_service)]) -> Response:
    """Classify one or more images, at the operating point or budget of the request or at the service's own."""
    return await _respond(request.scope, request.receive, service)


class PredictApp:
    """The predict route as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = PREDICT_ROUTE
        try:
            response = await _respond(scope, receive, self._service)
        except ApiError as error:
            response = api_error_response(error)
        await response(scope, receive, send)


async def _respond(scope: Scope, receive: Receive, service: Service) -> Response:
    seconds = service.settings.request_seconds
    try:
        async with asyncio.timeout(seconds):
            return await _predict(scope, receive, service)
    except TimeoutError:
        # Leaving the block has cancelled what waits in a queue; it is not computed any more.
        raise overloaded(
            f"the request took longer than {seconds:g} s; try again later", service.batcher.retry_after()
        ) from None


async def _predict(scope: Scope, receive: Receive, service: Service) -> Response:
    start = time.perf_counter()
    limits = service.settings
    with service.admission.admit() as slot:
        body = await read_body(scope, receive, slot, max_bytes=limits.max_body_bytes, timeout=limits.read_seconds)
        parsed, pixels_NHWK = await decode_request(service, slot, header(scope, b"content-type") or "", body)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BatchResult] = loop.create_future()
        service.batcher.submit(future, pixels_NHWK, parsed.point, all_exits=parsed.explain)
        result = await future
        images = image_results(service.model, [upload.name for upload in parsed.uploads], result.answers, parsed.top)
        if result.logits_EC is not None:
            images[0]["explanation"] = await loop.run_in_executor(
                service.decode_pool, explain, service.model, result.logits_EC
            )
    # The fields of `PredictResponse`, without its validation, which takes longer than the rest of the response.
    fields = {
        "operating_point": result.point,
        "milliseconds": 1000.0 * (time.perf_counter() - start),
        "engine_milliseconds": result.engine_ms,
        "batch": result.batch,
        "answers": images,
    }
    return Response(to_json(fields), media_type="application/json")


PREDICT_ROUTE = next(route for route in router.routes if isinstance(route, APIRoute))


async def decode_request(
    service: Service, slot: Slot, content_type: str, body: bytes
) -> tuple[PredictRequest, NDArray[np.uint8]]:
    """Parse a body and decode its images, so that a bad request is refused before it enters the queue.

    Returns:
        The request, and its images in the network's size, uint8 (N, H, W, K).
    """
    loop = asyncio.get_running_loop()
    if len(body) <= SMALL_BODY_BYTES:
        parsed, images = _parse_and_open(service, content_type, body)
    else:
        parsed, images = await loop.run_in_executor(service.decode_pool, _parse_and_open, service, content_type, body)
    pixels = sum(image.pixels for image in images)
    with slot.reserve_pixels(pixels):
        # A small file can have many pixels.
        if len(body) <= SMALL_BODY_BYTES and pixels <= SMALL_PIXELS:
            return parsed, _decode_all(service, images)
        return parsed, await loop.run_in_executor(service.decode_pool, _decode_all, service, images)


def _parse_and_open(service: Service, content_type: str, body: bytes) -> tuple[PredictRequest, list[OpenImage]]:
    limits = service.settings
    parsed = parse_request(content_type, body, max_images=limits.max_images)
    if parsed.point is not None:
        parsed = replace(parsed, point=_known_point(service, parsed.point))
    image_limits = Limits(max_pixels=limits.max_pixels, max_bytes=limits.max_body_bytes)
    images: list[OpenImage] = []
    pixels = 0
    for upload in parsed.uploads:
        images.append(open_upload(upload, image_limits))
        pixels += images[-1].pixels
        # Checked for each image, because opening some formats allocates the memory of the pixels.
        if pixels > limits.max_request_pixels:
            raise too_large(
                f"the images of the request have more than {limits.max_request_pixels:,} pixels in all; "
                "send fewer or smaller images"
            )
    return parsed, images


def _known_point(service: Service, point: str | float) -> str:
    """Return the name of the operating point of a request."""
    family = service.model.engine.family
    try:
        point = service.resolve(point)
        return family.point(point).name if isinstance(point, str) else family.for_budget(point).name
    except RequestError as error:
        raise ApiError(422, str(error)) from None


def open_upload(upload: Upload, limits: Limits) -> OpenImage:
    """Open an image file without decoding it.

    Raises:
        ApiError: 422 if it is not an image or is damaged, 413 if it has too many pixels.
    """
    try:
        return open_image(upload.content, upload.name, limits)
    except UnreadableImageError as error:
        raise ApiError(413 if isinstance(error, TooManyPixelsError) else 422, str(error)) from None


def _decode_all(service: Service, images: list[OpenImage]) -> NDArray[np.uint8]:
    """Decode all images and empty the list, so that one image at a time is in memory at its full size."""
    pixels_NHWK = np.empty((len(images), *service.model.preprocess.shape), dtype=np.uint8)
    for i in range(len(images)):
        pixels = images[0].pixels
        # The event loop, which decodes small images, must not wait.
        with nullcontext() if pixels <= SMALL_PIXELS else service.decode_budget.use(pixels):
            pixels_NHWK[i] = _decode(images.pop(0), service.model.preprocess)
    return pixels_NHWK


def _decode(image: OpenImage, preprocess: Preprocess) -> NDArray[np.uint8]:
    """Decode one image as `Model.predict` does, uint8 (H, W, K), and close it."""
    try:
        return preprocess.pixels(image)
    except WorkError as error:
        message = str(error)
    # The traceback of the other error would keep the image in memory until the response is sent.
    del image
    raise ApiError(422, message)
