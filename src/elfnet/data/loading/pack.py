"""The packed cache: images decoded once, resized to a shorter side, and stored in one memory-mapped file.

The file has the pixels of all images; then start, height and width of each image; then a JSON record, its length and a
mark. It is written under a temporary name and renamed when it is complete. The record contains the length of everything
before it, so that a truncated file is recognised.
"""

# Shapes: N images

import hashlib
import json
import logging
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from elfnet import atomic
from elfnet.data.images.decode import UnreadableImageError, UnreadableLog
from elfnet.data.images.files import Decoder, EncodedImages
from elfnet.data.images.resize import Choose, Part, Pixels, resized_pixels
from elfnet.data.loading.workers import WorkerProcesses, WorkerRequest
from elfnet.data.types import Ints
from elfnet.errors import WorkError
from elfnet.parsing import parse_json

MARK = b"elfnet packed images 1\n"
_LENGTH = struct.Struct("<Q")
_IMAGES_PER_TASK = 32
_log = logging.getLogger("elfnet.data")


class PackedImages:
    """Reads crops of images from a pack file.

    Args:
        file: The pack file.
        images: The packed images, for names in messages.

    Raises:
        WorkError: If the file cannot be read, or is truncated or damaged.
    """

    def __init__(self, file: Path, images: EncodedImages) -> None:
        self.file, self._images = file, images
        record, self._place_N3 = _read_footer(file)
        self.fingerprint: str = record["fingerprint"]
        self._unreadable: dict[str, str] = record["unreadable"]
        self._pixels: Pixels = np.memmap(file, dtype=np.uint8, mode="r")

    def __reduce__(self) -> tuple[type["PackedImages"], tuple[Path, EncodedImages]]:
        """Pickle only the path: every worker process maps the file itself."""
        return PackedImages, (self.file, self._images)

    def __len__(self) -> int:
        return len(self._place_N3)

    @property
    def unreadable(self) -> int:
        """Number of images that could not be read when the file was written."""
        return len(self._unreadable)

    def first_unreadable(self) -> str:
        """The problem of the first unreadable image."""
        return next(iter(self._unreadable.values()))

    def name(self, index: int) -> str:
        return self._images.name(index)

    def image(self, index: int) -> Pixels:
        """The pixels of an image, uint8 (H, W, 3), as a view of the file."""
        start, height, width = self._place_N3[index].tolist()
        if height == 0:
            raise UnreadableImageError(self._unreadable[str(index)])
        return self._pixels[start : start + height * width * 3].reshape(height, width, 3)

    def part(self, index: int, choose: Choose) -> Pixels:
        """Crop the part of an image that `choose(width, height)` returns, and resize it."""
        pixels = self.image(index)
        height, width, _ = pixels.shape
        return resized_pixels(pixels, choose(width, height))


def _pack_footer(place_N3: Ints, *, fingerprint: str, unreadable: dict[str, str]) -> bytes:
    """The bytes after the pixels."""
    index = np.ascontiguousarray(place_N3, dtype="<i8").tobytes()
    pixels = int((place_N3[:, 1] * place_N3[:, 2] * 3).sum())
    record = {"fingerprint": fingerprint, "images": len(place_N3), "pixel_bytes": pixels, "unreadable": unreadable}
    text = json.dumps(record).encode()
    return index + text + _LENGTH.pack(len(text)) + MARK


def _read_footer(file: Path) -> tuple[dict[str, Any], Ints]:
    damaged = f"packed images {file} are truncated or damaged; delete the file to create it again"
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
            record: dict[str, Any] = parse_json(content.read(length))
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


def pack_fingerprint(images: EncodedImages, *, side: int) -> str:
    """Hex sha256 of the names, sizes and modification times of the files, and of the side."""
    digest = hashlib.sha256(f"packed 1, side {side}".encode())
    for index in range(len(images)):
        digest.update(images.name(index).encode(errors="surrogateescape") + b"\0")
    digest.update(np.ascontiguousarray(images.stamps(), dtype="<i8").data)
    return digest.hexdigest()


def open_or_create_pack(
    images: EncodedImages, decoder: Decoder, directory: Path, *, side: int, workers: int, unreadable: str
) -> PackedImages:
    """Open the packed cache of some images, or create it if `directory` has none with the same files and side.

    Args:
        decoder: Decodes the images.
        side: Length of the shorter side after resizing; smaller images are not resized.
        workers: Number of worker processes.
        unreadable: "stop" raises at an image that cannot be read; "skip" logs it.
    """
    fingerprint = pack_fingerprint(images, side=side)
    file = directory / f"images-{fingerprint[:24]}.pack"
    if not file.is_file():
        _log.info("packing %d images into %s", len(images), file)
        _write(file, images, decoder, fingerprint=fingerprint, side=side, workers=workers, unreadable=unreadable)
    found = PackedImages(file, images)
    if found.fingerprint != fingerprint or len(found) != len(images):
        raise WorkError(f"packed images {file} contain other images; delete the file to create it again")
    if found.unreadable and unreadable == "stop":
        raise UnreadableImageError(f"{found.first_unreadable()}; or leave it out with data.unreadable=skip")
    return found


class _Decoded(NamedTuple):
    """Decoded images of one task.

    Attributes:
        pixels: Pixels of all images, concatenated, in shared memory.
        sizes: Height and width of each image; 0 if it is unreadable.
        failures: Name and problem of each unreadable image.
        rows: Positions of the unreadable images.
    """

    pixels: Tensor
    sizes: list[tuple[int, int]]
    failures: tuple[tuple[str, str], ...]
    rows: list[int]


class _PackReader(Dataset[_Decoded]):
    """Decodes and resizes images in a worker process."""

    def __init__(self, decoder: Decoder, side: int) -> None:
        self._decoder, self._side = decoder, side

    def __getitem__(self, request: WorkerRequest) -> _Decoded:
        parts, sizes, failures, failed = [], [], [], []
        for row in request[1].tolist():
            try:
                pixels = self._decoder.part(row, self._resized)
            except UnreadableImageError as error:
                failures.append((self._decoder.name(row), str(error)))
                failed.append(row)
                sizes.append((0, 0))
                continue
            parts.append(pixels.reshape(-1))
            sizes.append((pixels.shape[0], pixels.shape[1]))
        pixels = np.concatenate([np.zeros(0, dtype=np.uint8), *parts])
        return _Decoded(torch.from_numpy(pixels), sizes, tuple(failures), failed)

    def _resized(self, width: int, height: int) -> Part:
        scale = min(self._side / min(width, height), 1)
        return Part((0, 0, width, height), (max(round(width * scale), 1), max(round(height * scale), 1)))


def _write(
    file: Path,
    images: EncodedImages,
    decoder: Decoder,
    *,
    fingerprint: str,
    side: int,
    workers: int,
    unreadable: str,
) -> None:
    processes = WorkerProcesses(
        _PackReader(decoder, side), workers=workers, device=torch.device("cpu"), keep_workers=False
    )
    log, problems = UnreadableLog(unreadable), {}
    place_N3 = np.zeros((len(images), 3), dtype=np.int64)
    rows = np.split(np.arange(len(images)), range(_IMAGES_PER_TASK, len(images), _IMAGES_PER_TASK))
    place = done = 0
    try:
        with atomic.replacing(file) as temporary, temporary.open("wb") as content:
            for decoded in processes.read(0, rows):
                log.report(decoded.failures)
                problems.update(
                    {str(row): problem for row, (_, problem) in zip(decoded.rows, decoded.failures, strict=True)}
                )
                content.write(decoded.pixels.numpy().data)
                for height, width in decoded.sizes:
                    place_N3[done] = place, height, width
                    place += height * width * 3
                    done += 1
            content.write(_pack_footer(place_N3, fingerprint=fingerprint, unreadable=problems))
    finally:
        processes.close()
