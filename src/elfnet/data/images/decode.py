"""Safe decoding of one image, for training, prediction and the service alike.

The header is read once and checked against the limits before anything is decoded. Checksums are verified over the
whole file. EXIF orientation is applied, and the result is RGB or grey. Every failure is one line that names the image.

A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size at a fraction of the cost. This is used only if the result still
has at least as many pixels as needed. `UnreadableLog` counts or refuses images that cannot be read.
"""

# Shapes: H height, W width, 3 colours

import io
import logging
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np
from PIL import Image

from elfnet.data.images.resize import Choose, Part, Pixels, resized_image
from elfnet.data.images.silence import silent_decoders
from elfnet.errors import ElfnetError, WorkError

_log = logging.getLogger("elfnet.data")

# Only formats that Pillow decodes itself; some others start an external program.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"})

_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
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


class TooManyPixelsError(UnreadableImageError):
    """An image has more pixels than the limit."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is decoded: a small file may decode to gigabytes.

    Attributes:
        max_pixels: Largest number of pixels, width times height.
        max_bytes: Largest size of the encoded image.
        remedy: What a message about a size advises.
    """

    max_pixels: int = 80_000_000
    max_bytes: int = 64_000_000
    remedy: str = "make it smaller"


def decode(
    content: bytes,
    name: str,
    limits: Limits,
    *,
    choose: Choose | None = None,
    mode: str = "RGB",
    downscale: bool = True,
) -> Pixels:
    """Decode an image, apply its orientation, and crop and resize it.

    Args:
        content: The encoded image.
        name: Path of the image, for messages.
        limits: Larger images are refused before they are decoded.
        choose: Returns the part to crop and its new size, given width and height of the upright image; None for all.
        mode: "RGB" or "L" (grey).
        downscale: Decode JPEGs at a reduced size if that leaves enough pixels.

    Returns:
        uint8 pixels of shape (H, W, 3), or (H, W) for mode "L".

    Raises:
        UnreadableImageError: If the image is damaged, too large or of an unsupported format.
    """
    with open_image(content, name, limits) as image:
        return image.crop(choose or _whole_image, mode=mode, downscale=downscale)


def open_image(content: bytes, name: str, limits: Limits) -> "OpenImage":
    """Read and check the header of an image, and verify the checksums of the file; nothing is decoded.

    Raises:
        UnreadableImageError: See `decode`.
    """
    if len(content) > limits.max_bytes:
        raise UnreadableImageError(f"{name} has more than {limits.max_bytes:,} bytes; {limits.remedy}")
    if not content:
        raise UnreadableImageError(f"{name} is empty; copy it again")
    image = read_header(io.BytesIO(content), name, limits)
    if content.startswith(_PNG_MAGIC):
        _verify_png(content, name)
    return OpenImage(image, name, downscale=image.format == "JPEG")


def read_header(file: IO[bytes], name: str, limits: Limits) -> Image.Image:
    """Read and check the header of an image file. Only as much of the file is read as the header needs.

    Raises:
        UnreadableImageError: If it is not an image, or larger than the limits.
    """
    with silent_decoders():
        try:
            image = Image.open(file, formats=FORMATS)
        except Image.DecompressionBombError as error:
            raise TooManyPixelsError(f"{name} has more than {limits.max_pixels:,} pixels; {limits.remedy}") from error
        except Exception as error:
            raise UnreadableImageError(
                f"{name} is not an image or is damaged; give one of: {', '.join(FORMATS)}"
            ) from error
    _check_header(image, name, limits)
    return image


def open_picture(picture: Image.Image, name: str, limits: Limits) -> "OpenImage":
    """Check size and mode of a Pillow image, whose file, if it has one, cannot be verified any more."""
    _check_header(picture, name, limits)
    # Decoding at a smaller size would change the caller's image.
    return OpenImage(picture, name, downscale=False)


def _check_header(picture: Image.Image, name: str, limits: Limits) -> None:
    width, height = picture.size
    if width * height > limits.max_pixels:
        raise TooManyPixelsError(
            f"{name} has {width} x {height} pixels, the limit is {limits.max_pixels:,}; {limits.remedy}"
        )
    if min(width, height) < 1:
        raise UnreadableImageError(f"{name} has {width} x {height} pixels; give an image that is not empty")


class OpenImage:
    """An image whose header has been checked and whose pixels are decoded by `crop`, once.

    Attributes:
        name: Path of the image, for messages.
        pixels: Width times height.
        format: Pillow's name of the format; None for an image without a file.
    """

    def __init__(self, image: Image.Image, name: str, *, downscale: bool) -> None:
        self._image, self.name, self._can_downscale = image, name, downscale
        self.pixels: int = image.width * image.height
        self.format: str | None = image.format

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._image.close()

    def crop(self, choose: Choose, *, mode: str = "RGB", downscale: bool = True) -> Pixels:
        """Decode, apply the orientation, crop and resize; see `decode`."""
        image, name = self._image, self.name
        with silent_decoders():
            with _damage_named(name):
                # In other formats reading EXIF may decode the file; its errors must not be taken for those of EXIF.
                if image.format != "JPEG":
                    image.load()
                orientation = _orientation(image)
            width, height = image.size[::-1] if orientation in _SIDEWAYS else image.size
            part = choose(width, height)
            with _damage_named(name):
                if downscale and self._can_downscale:
                    _decode_smaller(image, part)
                image.load()
                upright = image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image
                pixels_HW3 = _cropped(to_rgb(upright, name), part, (width, height))
        # Grey that was converted to RGB converts back without a change.
        return pixels_HW3 if mode == "RGB" else np.asarray(Image.fromarray(pixels_HW3).convert(mode))


def read_bytes(path: Path, limits: Limits) -> bytes:
    """Read an image file, at most one byte more than the limit, which `open_image` then refuses.

    Raises:
        UnreadableImageError: If there is no such file, it cannot be read, or is not a regular file.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            # Reading a pipe or a device might never end.
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableImageError(f"{path} is not a regular file; name an image file")
            return file.read(limits.max_bytes + 1)
    except FileNotFoundError as error:
        raise UnreadableImageError(f"there is no image {path}; check the path") from error
    except IsADirectoryError as error:
        raise UnreadableImageError(
            f"folder {path} contains no image; name files, or a folder with {' '.join(sorted(SUFFIXES))}"
        ) from error
    except (OSError, ValueError) as error:
        raise UnreadableImageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; opening a pipe would otherwise wait for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def image_size(content: bytes, name: str, limits: Limits) -> tuple[int, int]:
    """Decode the whole image and return (width, height) of the upright image."""
    height, width, _ = decode(content, name, limits).shape
    return width, height


def _whole_image(width: int, height: int) -> Part:
    return Part((0, 0, width, height), (width, height))


def _verify_png(content: bytes, name: str) -> None:
    """Verify the checksum of every chunk up to the last one; Pillow does not verify those of the pixels."""
    place, kind, view = len(_PNG_MAGIC), b"", memoryview(content)
    while kind != b"IEND":
        if len(content) < place + 12:
            raise UnreadableImageError(f"{name} is truncated; copy or save it again")
        (length,) = struct.unpack_from(">I", content, place)
        kind, end = content[place + 4 : place + 8], place + 8 + length
        if len(content) < end + 4:
            raise UnreadableImageError(f"{name} is truncated or damaged; copy or save it again")
        if zlib.crc32(view[place + 4 : end]) != struct.unpack_from(">I", content, end)[0]:
            raise UnreadableImageError(f"{name} is damaged (a checksum does not match); copy or save it again")
        place = end + 4


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    """Turn any error of the decoder into one line that names the image."""
    try:
        yield
    except ElfnetError:
        raise
    except MemoryError as error:
        raise UnreadableImageError(f"{name} needs more memory than there is; make it smaller") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableImageError(f"{name} is truncated or damaged ({reason}); copy or save it again") from error


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1 (upright) if there is none or it cannot be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata; the pixels are verified by decoding them
        return 1


def _decode_smaller(image: Image.Image, part: Part) -> None:
    """Make the JPEG decoder decode at 1/2, 1/4 or 1/8 of the size, at most by the factor of the later resizing."""
    box, size = part.box, part.size
    factor = min((box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1])
    scale = max((s for s in (1, 2, 4, 8) if s <= factor), default=1)
    if scale > 1:
        width, height = image.size
        image.draft(None, (width // scale, height // scale))


def _cropped(image: Image.Image, part: Part, full_size: tuple[int, int]) -> Pixels:
    """Crop and resize an upright image, which may have been decoded at a smaller size than `full_size`."""
    box = part.box
    if image.size != full_size:
        x_scale, y_scale = image.width / full_size[0], image.height / full_size[1]
        box = (box[0] * x_scale, box[1] * y_scale, box[2] * x_scale, box[3] * y_scale)
    if (box, part.size) == ((0, 0, *image.size), image.size):
        return np.asarray(image)
    return resized_image(image, part._replace(box=box))


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Convert an image of any mode to RGB: transparency becomes white, 16-bit channels keep their high byte."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65_535:
            raise UnreadableImageError(f"{name} has pixels beyond 16 bits; convert it to 8 or 16 bits")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UnreadableImageError(f"{name} has floating-point pixels; convert it to 8 or 16 bits")
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
                raise UnreadableImageError(f"{problem}; or leave it out with data.unreadable=skip")
            if name not in self._seen:
                self._seen.add(name)
                _log.warning("skipped: %s (%d so far)", problem, len(self._seen))
