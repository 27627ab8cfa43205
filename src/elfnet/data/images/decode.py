"""Safe decoding of one image: limits on size, known formats only, EXIF orientation applied, converted to RGB.

A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size at a fraction of the cost. This is used only if the result still
has at least as many pixels as needed. `UnreadableLog` counts or refuses images that cannot be read.
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

# Only formats that Pillow decodes itself; some others start an external program.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# Exceptions that Pillow raises for damaged files.
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


class UnreadableImageError(WorkError):
    """An image is missing, damaged, too large or of an unsupported format; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Largest image that is decoded: a small file may decode to gigabytes.

    Attributes:
        max_pixels: Largest number of pixels, width times height.
        max_bytes: Largest size of the encoded image.
    """

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
    """Decode an image, apply its orientation, and crop and resize it.

    Args:
        content: The encoded image.
        name: Path of the image, for messages.
        choose: Returns the part to crop and its new size, given width and height of the upright image.
        limits: Larger images are refused before they are decoded.
        downscale: Decode JPEGs at a reduced size if that leaves enough pixels.

    Returns:
        uint8 pixels of shape (H, W, 3).

    Raises:
        UnreadableImageError: If the image is damaged, too large or of an unsupported format.
    """
    try:
        with _open(content, name, limits) as image:
            orientation = _orientation(image)
            width, height = image.size[::-1] if orientation in _SIDEWAYS else image.size
            part = choose(width, height)
            box, size = part.box, part.size
            if downscale and image.format == "JPEG":
                _decode_smaller(image, min((box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]))
            image.load()
            upright = image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image
            scaled_width, scaled_height = upright.size
            if (scaled_width, scaled_height) != (width, height):
                x_scale, y_scale = scaled_width / width, scaled_height / height
                box = (box[0] * x_scale, box[1] * y_scale, box[2] * x_scale, box[3] * y_scale)
            return resized_image(to_rgb(upright, name), part._replace(box=box))
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:
        # Pillow's own message is about an object in memory.
        raise UnreadableImageError(f"image {name} is damaged or not an image") from error
    except (*DAMAGE, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        problem = str(error).strip() or type(error).__name__
        raise UnreadableImageError(f"image {name} is damaged or not an image ({problem})") from error


def image_size(content: bytes, name: str, limits: Limits) -> tuple[int, int]:
    """Decode the whole image and return (width, height) of the upright image."""
    height, width, _ = read_crop(content, name, choose=_whole_image, limits=limits).shape
    return width, height


def _whole_image(width: int, height: int) -> Part:
    return Part((0, 0, width, height), (width, height))


def _open(content: bytes, name: str, limits: Limits) -> Image.Image:
    if not content:
        raise UnreadableImageError(f"image {name} is empty")
    with warnings.catch_warnings():
        # Pillow warns about large images by its own limit; `limits` is checked instead.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    width, height = image.size
    if width * height > limits.max_pixels:
        raise UnreadableImageError(
            f"image {name} has {width} x {height} pixels, more than {limits.max_pixels / 1e6:g} million; "
            "raise data.max_megapixels if this is intended"
        )
    return image


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1 (upright) if there is none or it cannot be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except DAMAGE:
        return 1


def _decode_smaller(image: Image.Image, factor: float) -> None:
    """Make the JPEG decoder decode at 1/2, 1/4 or 1/8 of the size, at most by the `factor` of the later resizing."""
    scale = max((s for s in (1, 2, 4, 8) if s <= factor), default=1)
    if scale > 1:
        width, height = image.size
        image.draft(None, (width // scale, height // scale))


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Convert an image of any mode to RGB: transparency becomes white, 16-bit grey keeps its high byte."""
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


class UnreadableLog:
    """Reports unreadable images.

    Args:
        action: "stop" raises at the first one; "skip" logs a warning per image and counts them.
    """

    def __init__(self, action: str) -> None:
        self._stop = action == "stop"
        self._seen: set[str] = set()

    @property
    def count(self) -> int:
        """Number of different images skipped so far."""
        return len(self._seen)

    def report(self, failures: Iterable[tuple[str, str]]) -> None:
        """Report images that could not be read, as pairs of name and problem."""
        for name, problem in failures:
            if self._stop:
                raise UnreadableImageError(f"{problem}; repair or remove it, or set data.unreadable=skip")
            if name not in self._seen:
                self._seen.add(name)
                _log.warning("skipped: %s (%d so far)", problem, len(self._seen))
