"""Read the headers of image files: their sizes, and which of them are damaged, without decoding any."""

# Shapes: N images

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

import numpy as np

from elfnet.data.images.decode import Limits, UnreadableImageError, read_header
from elfnet.data.images.files import EncodedImages, ImageFiles

GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B")
MOSTLY = 0.9
"""Share of grey images from which a data set counts as grey."""
READ_AT_ONCE = 4096
THREADS = 8
"""More than cores: headers are small, and reading them waits for the disk."""


@dataclass(frozen=True, kw_only=True)
class Headers:
    """What the headers of some images say.

    Attributes:
        images: Number of images.
        side: Median of the shorter sides of the readable ones, in pixels; 0 if there is none.
        grey: Whether nearly all of them are grey.
        unreadable: One message per image whose header cannot be read, or which is larger than the limits.
    """

    images: int
    side: int
    grey: bool
    unreadable: tuple[str, ...]


def read_headers(images: EncodedImages, limits: Limits) -> Headers:
    """Read the header of every image."""
    sides, grey, unreadable = [], 0, []
    with ThreadPoolExecutor(THREADS) as pool:
        # In chunks, so that half a million tasks are not queued at once.
        for start in range(0, len(images), READ_AT_ONCE):
            rows = range(start, min(start + READ_AT_ONCE, len(images)))
            for found in pool.map(lambda row: _read_header(images, row, limits), rows):
                if isinstance(found, str):
                    unreadable.append(found)
                else:
                    side, is_grey = found
                    sides.append(side)
                    grey += is_grey
    return Headers(
        images=len(images),
        side=int(np.median(sides)) if sides else 0,
        grey=bool(sides) and grey >= MOSTLY * len(sides),
        unreadable=tuple(unreadable),
    )


def check_headers(splits: Mapping[str, EncodedImages], limits: Limits, *, unreadable: str) -> dict[str, Headers]:
    """Read the headers of all images of all splits.

    Args:
        splits: Images by name of split.
        limits: Larger images count as unreadable.
        unreadable: `stop` refuses unreadable images; `skip` leaves them to training, which counts them.

    Raises:
        UnreadableImageError: An image is unreadable, and `unreadable` is `stop`.
    """
    found = {name: read_headers(images, limits) for name, images in splits.items()}
    wrong = [message for headers in found.values() for message in headers.unreadable]
    if wrong and unreadable == "stop":
        more = (
            f" (and {len(wrong) - 1:,} more; 'elfnet data describe PATH --deep' lists them)" if len(wrong) > 1 else ""
        )
        raise UnreadableImageError(f"{wrong[0]}{more}; repair or remove it, or set data.unreadable=skip")
    return found


def _read_header(images: EncodedImages, row: int, limits: Limits) -> tuple[int, bool] | str:
    """Shorter side and whether the image is grey, or a message about what is wrong."""
    name = images.name(row)
    try:
        if not isinstance(images, ImageFiles):
            return _measure(io.BytesIO(images.encoded(row, limits)), name, limits)
        path = images.root / images.paths[row]
        if path.stat().st_size > limits.max_bytes:
            return f"{name} has more than {limits.max_bytes:,} bytes; {limits.remedy}"
        with path.open("rb") as file:
            return _measure(file, name, limits)
    except UnreadableImageError as error:
        return str(error)
    except OSError as error:
        return f"cannot read {name}: {error.strerror or error}"


def _measure(file: IO[bytes], name: str, limits: Limits) -> tuple[int, bool]:
    with read_header(file, name, limits) as image:
        return min(image.size), image.mode in GREY_MODES
