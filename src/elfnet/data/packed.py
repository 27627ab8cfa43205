"""The packed cache: images decoded once, resized to a shorter side, and kept as bytes in one memory-mapped file.

File: the pixels of all images one after the other; then for each image where it begins, its height and its width;
then a JSON record, its length and a mark. It is written under another name and renamed when it is whole, and the record
at its end has the length of everything before it, so a file that was cut short is never taken for whole.
"""

# Shapes: N images

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.data.examples import Ints
from elfnet.data.image_files import EncodedImages
from elfnet.data.resize import Choose, Pixels, resized_pixels
from elfnet.data.unreadable import UnreadableImageError
from elfnet.errors import WorkError

MARK = b"elfnet packed images 1\n"
_LENGTH = struct.Struct("<Q")


class PackedImages:
    """Reads parts of packed images; the same as decoding them, but for what resizing once has changed.

    Args:
        images: what was packed, for the names in messages.
    """

    def __init__(self, file: Path, images: EncodedImages) -> None:
        self.file, self._images = file, images
        record, self._place_N3 = _read_end(file)
        self.fingerprint: str = record["fingerprint"]
        self._unreadable: dict[str, str] = record["unreadable"]
        self._pixels: Pixels = np.memmap(file, dtype=np.uint8, mode="r")

    def __reduce__(self) -> tuple[type["PackedImages"], tuple[Path, EncodedImages]]:
        """A worker process maps the file for itself; else it would be sent all pixels."""
        return PackedImages, (self.file, self._images)

    def __len__(self) -> int:
        return len(self._place_N3)

    @property
    def unreadable(self) -> int:
        """Images that could not be read when it was made."""
        return len(self._unreadable)

    def first_unreadable(self) -> str:
        """What was wrong with the first of them."""
        return next(iter(self._unreadable.values()))

    def name(self, index: int) -> str:
        return self._images.name(index)

    def image(self, index: int) -> Pixels:
        """uint8 (H, W, 3), a view of the file."""
        start, height, width = self._place_N3[index].tolist()
        if height == 0:
            raise UnreadableImageError(self._unreadable[str(index)])
        return self._pixels[start : start + height * width * 3].reshape(height, width, 3)

    def part(self, index: int, choose: Choose) -> Pixels:
        """The part of an image that `choose(width, height)` names, at the size it names."""
        pixels = self.image(index)
        height, width, _ = pixels.shape
        return resized_pixels(pixels, choose(width, height))


def end_of_pack(place_N3: Ints, *, fingerprint: str, unreadable: dict[str, str]) -> bytes:
    """What stands behind the pixels."""
    index = np.ascontiguousarray(place_N3, dtype="<i8").tobytes()
    pixels = int((place_N3[:, 1] * place_N3[:, 2] * 3).sum())
    record = {"fingerprint": fingerprint, "images": len(place_N3), "pixel_bytes": pixels, "unreadable": unreadable}
    text = json.dumps(record).encode()
    return index + text + _LENGTH.pack(len(text)) + MARK


def _read_end(file: Path) -> tuple[dict[str, Any], Ints]:
    damaged = f"packed images {file} are truncated or damaged; delete the file, and it is made anew"
    tail = _LENGTH.size + len(MARK)
    try:
        size = file.stat().st_size
        with file.open("rb") as content:
            content.seek(max(size - tail, 0))
            end = content.read(tail)
            if len(end) != tail or not end.endswith(MARK):
                raise WorkError(damaged)
            (length,) = _LENGTH.unpack(end[: _LENGTH.size])
            content.seek(max(size - tail - length, 0))
            record: dict[str, Any] = json.loads(content.read(length))
            images, pixels = record["images"], record["pixel_bytes"]
            if size != pixels + 24 * images + length + tail:
                raise WorkError(damaged)
            content.seek(pixels)
            place_N3 = np.frombuffer(content.read(24 * images), dtype="<i8").astype(np.int64).reshape(images, 3)
    except OSError as error:
        raise WorkError(f"cannot read packed images {file}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise WorkError(damaged) from error
    return record, place_N3
