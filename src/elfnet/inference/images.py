"""Read untrusted image files within limits, or refuse them with one line that names the file.

Bytes, pixels and mode are checked from the header, before anything is decoded. Decoding is shared with the training
data (`elfnet.data.images`), so that the network gets the same pixels as in evaluation.
"""

# Shapes: H height, W width, 3 colours

import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps

from elfnet.data.images.decode import FORMATS, Limits, read_crop, to_rgb
from elfnet.data.images.resize import Choose, Pixels, resized_image
from elfnet.errors import WorkError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"})
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX")
"""Pillow modes that convert to 8-bit grey or RGB without loss of range."""

# Warning filters belong to the whole process: only one thread at a time may change and restore them.
_FILTERS = threading.Lock()
_saved_filters = warnings.catch_warnings()
_silenced = 0


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress Pillow's warnings about metadata, which is not used, and about sizes, which have limits here."""
    if _silenced:
        yield
        return
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def silent_pillow() -> Iterator[None]:
    """Suppress Pillow's warnings in the whole process, so that threads that decode need not wait for each other."""
    global _saved_filters, _silenced
    with _FILTERS:
        if not _silenced:
            _saved_filters = warnings.catch_warnings()
            _saved_filters.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\b")
        _silenced += 1
    try:
        yield
    finally:
        # The last context restores what the first one saved.
        with _FILTERS:
            _silenced -= 1
            if not _silenced:
                _saved_filters.__exit__(None, None, None)


def read_image(path: str | Path, *, mode: str, choose: Choose, limits: Limits) -> Pixels:
    """Read an image file, crop it and resize it.

    The EXIF orientation is applied first. Of an animation the first frame is used.

    Args:
        path: The file.
        mode: "L" (grey) or "RGB".
        choose: Returns crop box and target size for the width and height of the upright image.
        limits: Largest number of bytes and pixels.

    Returns:
        uint8 (H, W) for mode "L", (H, W, 3) for "RGB".

    Raises:
        WorkError: The file cannot be read, is not an image, or exceeds the limits.
    """
    return decode_image(_read_bytes(Path(path), limits.max_bytes), str(path), mode=mode, choose=choose, limits=limits)


def decode_image(content: bytes, name: str, *, mode: str, choose: Choose, limits: Limits) -> Pixels:
    """Decode the content of an image file as `read_image` does; messages call it `name`."""
    if len(content) > limits.max_bytes:
        raise WorkError(f"{name} has more than {limits.max_bytes:,} bytes; make it smaller")
    if not content:
        raise WorkError(f"{name} is empty; copy it again")
    with _without_warnings():
        try:
            with Image.open(BytesIO(content), formats=FORMATS) as header:
                _check_image(header, name, limits)
        except WorkError:
            raise
        except Image.DecompressionBombError as error:
            raise WorkError(f"{name} has more than {limits.max_pixels:,} pixels; make it smaller") from error
        except Exception as error:
            raise WorkError(f"{name} is not an image or is damaged; give one of: {', '.join(FORMATS)}") from error
        with _name_in_errors(name):
            return _in_mode(read_crop(content, name, choose=choose, limits=limits), mode)


def crop_picture(
    picture: Image.Image, *, mode: str, choose: Choose, limits: Limits, name: str = "the picture"
) -> Pixels:
    """Crop and resize a PIL image as `read_image` does; messages call it `name`."""
    _check_image(picture, name, limits)
    with _without_warnings(), _name_in_errors(name):
        picture.load()
        # `exif_transpose` would copy an image that is upright already.
        turned = picture.getexif().get(ExifTags.Base.Orientation, 1) != 1
        upright = to_rgb(ImageOps.exif_transpose(picture) if turned else picture, name)
        part = choose(*upright.size)
        if (part.box, part.size) == ((0, 0, *upright.size), upright.size):
            return _in_mode(np.asarray(upright), mode)
        return _in_mode(resized_image(upright, part), mode)


def _in_mode(pixels_HW3: Pixels, mode: str) -> Pixels:
    # Grey that was converted to RGB converts back without a change.
    return pixels_HW3 if mode == "RGB" else np.asarray(Image.fromarray(pixels_HW3).convert(mode))


@contextmanager
def _name_in_errors(name: str) -> Iterator[None]:
    try:
        yield
    except WorkError as error:
        if error.__cause__ is None:  # the message is complete
            raise
        raise WorkError(f"{error}; copy or save it again") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise WorkError(f"{name} is truncated or damaged ({reason}); copy or save it again") from error


def _check_image(image: Image.Image, name: str, limits: Limits) -> None:
    width, height = image.size
    if width * height > limits.max_pixels:
        raise WorkError(f"{name} has {width} x {height} pixels, the limit is {limits.max_pixels:,}; make it smaller")
    if min(width, height) < 1:
        raise WorkError(f"{name} has {width} x {height} pixels; give an image that is not empty")
    if image.mode not in MODES or _has_16_bits(image):
        found = "16 bits per channel" if _has_16_bits(image) else f"mode {image.mode}"
        raise WorkError(f"{name} has {found}, which is not converted automatically; save it as 8-bit grey or RGB")


def _has_16_bits(image: Image.Image) -> bool:
    """Return whether the file stores 16 bits per channel; Pillow opens it as RGB and truncates the values."""
    stored = [image.mode]
    for tile in getattr(image, "tile", ()):
        arguments = tile[3]
        stored += [arguments] if isinstance(arguments, str) else [part for part in arguments or () if part]
    return any(isinstance(raw, str) and ";16" in raw for raw in stored)


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise WorkError(
                f"folder {path} contains no image; name files, or a folder with {' '.join(sorted(SUFFIXES))}"
            )
        # Reading a pipe or a device might never end.
        if not stat.S_ISREG(found.st_mode):
            raise WorkError(f"{path} is not a regular file; name an image file")
        with path.open("rb") as file:
            # One byte more than allowed, to detect a file that is too long.
            return file.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise WorkError(f"there is no image {path}; check the path") from error
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
