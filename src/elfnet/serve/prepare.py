"""From the body of a request to pixels. What cannot be answered is refused before it waits in the queue."""

# Shapes: N images, H height, W width, K channels

import asyncio

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.errors import RequestError
from elfnet.serve.asked import Asked, read_asked
from elfnet.serve.received_image import decode, open_upload
from elfnet.serve.refusal import Refusal
from elfnet.serve.service import Service

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
