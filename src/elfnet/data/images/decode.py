"""Decoding one image safely: limits before anything is decoded, known formats only, upright, in RGB.

A JPEG decoder can decode at a half, a quarter or an eighth of the size at a fraction of the cost. That is used only
where what is left still has at least the pixels that are needed.
"""

import io
import logging
import struct
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from PIL import Image, UnidentifiedImageError

from elfnet.data.images.resize import Choose, Part, Pixels, resized_image
from elfnet.errors import WorkError

_log = logging.getLogger("elfnet.data")


class UnreadableImageError(WorkError):
    """An image that is missing, damaged, too large, or of a kind that is not read; the message has its path."""


class Unreadable:
    """Keeps account of unreadable images.

    Args:
        action: "stop" raises at the first one; "skip" logs each once and counts them.
    """

    def __init__(self, action: str) -> None:
        self._stop = action == "stop"
        self._seen: set[str] = set()

    @property
    def count(self) -> int:
        """Different images that were skipped so far."""
        return len(self._seen)

    def meet(self, failures: Iterable[tuple[str, str]]) -> None:
        """Take (name, what is wrong) of images that could not be read."""
        for name, what in failures:
            if self._stop:
                raise UnreadableImageError(f"{what}; repair or remove it, or set data.unreadable=skip")
            if name not in self._seen:
                self._seen.add(name)
                _log.warning("skipped: %s (%d so far)", what, len(self._seen))


# Formats whose decoders run in Pillow itself; none that starts another program.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, OverflowError, IndexError, TypeError)
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused before it is decoded: a small file may decode to gigabytes."""

    max_pixels: int = 80_000_000
    max_bytes: int = 64_000_000


def read_crop(
    content: bytes,
    name: str,
    *,
    choose: Choose,
    limits: Limits,
    downscale: bool = True,
) -> Pixels:
    """Decode, stand upright, and bring a part of an image to a size: uint8 (H, W, 3).

    Args:
        name: the image's path, for messages.
        choose: gets width and height, gives the part to take and its size afterwards.
        downscale: let the JPEG decoder decode at less than full size where that leaves enough pixels.
    """
    try:
        with _opened(content, name, limits) as image:
            turned = _orientation(image)
            width, height = image.size[::-1] if turned in _SIDEWAYS else image.size
            part = choose(width, height)
            box, size = part.box, part.size
            if downscale and image.format == "JPEG":
                _decode_smaller(image, min((box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]))
            image.load()
            upright = image.transpose(_UPRIGHT[turned]) if turned in _UPRIGHT else image
            scaled_width, scaled_height = upright.size
            if (scaled_width, scaled_height) != (width, height):
                across, down = scaled_width / width, scaled_height / height
                box = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
            return resized_image(to_rgb(upright, name), part._replace(box=box))
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:
        # Pillow's own words are about an object in memory.
        raise UnreadableImageError(f"image {name} is damaged or not an image") from error
    except (*DAMAGE, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        what = str(error).strip() or type(error).__name__
        raise UnreadableImageError(f"image {name} is damaged or not an image ({what})") from error


def image_size(content: bytes, name: str, limits: Limits) -> tuple[int, int]:
    """(width, height) after the whole image was decoded: what cannot be decoded has none."""
    height, width, _ = read_crop(content, name, choose=_whole, limits=limits).shape
    return width, height


def _whole(width: int, height: int) -> Part:
    return Part((0, 0, width, height), (width, height))


def _opened(content: bytes, name: str, limits: Limits) -> Image.Image:
    if not content:
        raise UnreadableImageError(f"image {name} is empty")
    with warnings.catch_warnings():
        # Pillow warns of large images by a limit of its own; ours is the one that counts.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    width, height = image.size
    if width * height > limits.max_pixels:
        raise UnreadableImageError(
            f"image {name} has {width} x {height} pixels, more than {limits.max_pixels / 1e6:g} million; "
            "raise data.max_megapixels if it is no mistake"
        )
    return image


def _orientation(image: Image.Image) -> int:
    """How the camera was held: 1 is upright. Unreadable metadata is no reason to refuse the pixels."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except DAMAGE:
        return 1


def _decode_smaller(image: Image.Image, factor: float) -> None:
    """Ask the JPEG decoder for 1/2, 1/4 or 1/8 of the size if the part is at least so many times what is needed."""
    scale = max((s for s in (1, 2, 4, 8) if s <= factor), default=1)
    if scale > 1:
        width, height = image.size
        image.draft(None, (width // scale, height // scale))


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Any mode as RGB: transparency on white, 16-bit grey by its high byte."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65_535:
            raise UnreadableImageError(f"image {name} has pixels beyond 16 bits; convert it to 8 or 16 bits")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UnreadableImageError(f"image {name} has floating-point pixels; convert it to 8 or 16 bits")
    if image.has_transparency_data:
        over = image.convert("RGBA")
        under = Image.new("RGBA", over.size, "white")
        return Image.alpha_composite(under, over).convert("RGB")
    return image.convert("RGB")
