"""Image files that may be anything: read within limits, or refused in one line that names the file.

Size, pixels and mode are judged from the header, before anything is decoded. Decoding itself is that of the training
data (`data.read_image`), so that a network sees an image as it did in evaluation.
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
"""What is converted without asking; more bits or other colours would be cut off."""

# Warning filters belong to the whole process: only one thread at a time may change them and put them back.
_FILTERS = threading.Lock()
_before = warnings.catch_warnings()
_silenced = 0


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Pillow warns of odd metadata, which is no concern here, and of sizes, which have limits of their own here."""
    if _silenced:
        yield
        return
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def silent_pillow() -> Iterator[None]:
    """No warnings of Pillow in the whole process, so that threads which decode need not wait for each other."""
    global _before, _silenced
    with _FILTERS:
        if not _silenced:
            _before = warnings.catch_warnings()
            _before.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\b")
        _silenced += 1
    try:
        yield
    finally:
        # The last one to leave puts back what the first one found.
        with _FILTERS:
            _silenced -= 1
            if not _silenced:
                _before.__exit__(None, None, None)


def read_image(path: str | Path, *, mode: str, choose: Choose, limits: Limits) -> Pixels:
    """The part of the image in a file that `choose` names, in `mode`: uint8 (H, W) for "L", (H, W, 3) for "RGB".

    The image is stood upright first; of an animation it is the first frame.
    """
    return decode_image(_read_bytes(Path(path), limits.max_bytes), str(path), mode=mode, choose=choose, limits=limits)


def decode_image(content: bytes, name: str, *, mode: str, choose: Choose, limits: Limits) -> Pixels:
    """The same for a file that is in memory; `name` stands for it in messages."""
    if len(content) > limits.max_bytes:
        raise WorkError(f"{name} has more than {limits.max_bytes:,} bytes; make it smaller")
    if not content:
        raise WorkError(f"{name} is empty; copy it again")
    with _without_warnings():
        try:
            with Image.open(BytesIO(content), formats=FORMATS) as header:
                _require_ordinary(header, name, limits)
        except WorkError:
            raise
        except Image.DecompressionBombError as error:
            raise WorkError(f"{name} has more than {limits.max_pixels:,} pixels; make it smaller") from error
        except Exception as error:
            raise WorkError(f"{name} is not an image or is damaged; give one of: {', '.join(FORMATS)}") from error
        with _damage_named(name):
            return _in_mode(read_crop(content, name, choose=choose, limits=limits), mode)


def part_of_picture(
    picture: Image.Image, *, mode: str, choose: Choose, limits: Limits, name: str = "the picture"
) -> Pixels:
    """The same for a picture that is open or in memory already."""
    _require_ordinary(picture, name, limits)
    with _without_warnings(), _damage_named(name):
        picture.load()
        # `exif_transpose` copies a picture that stands upright already.
        turned = picture.getexif().get(ExifTags.Base.Orientation, 1) != 1
        upright = to_rgb(ImageOps.exif_transpose(picture) if turned else picture, name)
        part = choose(*upright.size)
        if (part.box, part.size) == ((0, 0, *upright.size), upright.size):
            return _in_mode(np.asarray(upright), mode)
        return _in_mode(resized_image(upright, part), mode)


def _in_mode(pixels_HW3: Pixels, mode: str) -> Pixels:
    # Grey that was made RGB comes back as it was.
    return pixels_HW3 if mode == "RGB" else np.asarray(Image.fromarray(pixels_HW3).convert(mode))


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    try:
        yield
    except WorkError as error:
        if error.__cause__ is None:  # already says all there is to say
            raise
        raise WorkError(f"{error}; copy or save it again") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise WorkError(f"{name} is truncated or damaged ({reason}); copy or save it again") from error


def _require_ordinary(image: Image.Image, name: str, limits: Limits) -> None:
    width, height = image.size
    if width * height > limits.max_pixels:
        raise WorkError(f"{name} has {width} x {height} pixels, the limit is {limits.max_pixels:,}; make it smaller")
    if min(width, height) < 1:
        raise WorkError(f"{name} has {width} x {height} pixels; there is nothing to see")
    if image.mode not in MODES or _has_16_bits(image):
        found = "16 bits a channel" if _has_16_bits(image) else f"mode {image.mode}"
        raise WorkError(f"{name} has {found}, which is not converted silently; save it as 8-bit grey or RGB")


def _has_16_bits(image: Image.Image) -> bool:
    """Pillow opens 16-bit colour as RGB and cuts the values off; only the way it is stored tells."""
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
                f"no image can be found in folder {path}; name files, or a folder with {' '.join(sorted(SUFFIXES))}"
            )
        # A pipe or a device could be read for ever.
        if not stat.S_ISREG(found.st_mode):
            raise WorkError(f"{path} is not a regular file; name an image file")
        with path.open("rb") as file:
            # One more than allowed, so that what is too long shows.
            return file.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise WorkError(f"there is no image {path}; check the name") from error
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
