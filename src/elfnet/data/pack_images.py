"""Making the packed cache, once for a set of files and a side; opening it when it is there."""

# Shapes: N images

import hashlib
import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from elfnet import atomic
from elfnet.data.image_files import EncodedImages
from elfnet.data.image_reader import Decoder
from elfnet.data.loading.workers import WorkerProcesses, WorkerRequest
from elfnet.data.packed import PackedImages, end_of_pack
from elfnet.data.resize import Part
from elfnet.data.unreadable import Unreadable, UnreadableImageError
from elfnet.errors import WorkError

_log = logging.getLogger("elfnet.data")
_AT_ONCE = 32


def pack_fingerprint(images: EncodedImages, *, side: int) -> str:
    """sha256 of the names, sizes and times of the files, and of the side."""
    digest = hashlib.sha256(f"packed 1, side {side}".encode())
    for index in range(len(images)):
        digest.update(images.name(index).encode(errors="surrogateescape") + b"\0")
    digest.update(np.ascontiguousarray(images.stamps(), dtype="<i8").data)
    return digest.hexdigest()


def packed(
    images: EncodedImages, decoder: Decoder, directory: Path, *, side: int, workers: int, unreadable: str
) -> PackedImages:
    """The packed cache of these images: the one in `directory` if it is of the same files and side, else made now.

    Args:
        side: the shorter side that images are resized to; smaller ones are kept as they are.
    """
    fingerprint = pack_fingerprint(images, side=side)
    file = directory / f"images-{fingerprint[:24]}.pack"
    if not file.is_file():
        _log.info("packing %d images into %s", len(images), file)
        _write(file, images, decoder, fingerprint=fingerprint, side=side, workers=workers, unreadable=unreadable)
    found = PackedImages(file, images)
    if found.fingerprint != fingerprint or len(found) != len(images):
        raise WorkError(f"packed images {file} are of other images; delete the file, and it is made anew")
    if found.unreadable and unreadable == "stop":
        raise UnreadableImageError(f"{found.first_unreadable()}; repair or remove it, or set data.unreadable=skip")
    return found


class _Decoded(NamedTuple):
    """Some images: their bytes in a row (shared memory between processes), and each one's size; 0 if unreadable."""

    pixels: Tensor
    sizes: list[tuple[int, int]]
    failures: tuple[tuple[str, str], ...]
    rows: list[int]


class _PackReader(Dataset[_Decoded]):
    def __init__(self, decoder: Decoder, side: int) -> None:
        self._decoder, self._side = decoder, side

    def __getitem__(self, request: WorkerRequest) -> _Decoded:
        parts, sizes, failures, failed = [], [], [], []
        for row in request[1].tolist():
            try:
                pixels = self._decoder.part(row, self._smaller)
            except UnreadableImageError as error:
                failures.append((self._decoder.name(row), str(error)))
                failed.append(row)
                sizes.append((0, 0))
                continue
            parts.append(pixels.reshape(-1))
            sizes.append((pixels.shape[0], pixels.shape[1]))
        together = np.concatenate([np.zeros(0, dtype=np.uint8), *parts])
        return _Decoded(torch.from_numpy(together), sizes, tuple(failures), failed)

    def _smaller(self, width: int, height: int) -> Part:
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
    account, reasons = Unreadable(unreadable), {}
    place_N3 = np.zeros((len(images), 3), dtype=np.int64)
    rows = np.split(np.arange(len(images)), range(_AT_ONCE, len(images), _AT_ONCE))
    place = done = 0
    try:
        with atomic.replacing(file) as temporary, temporary.open("wb") as content:
            for decoded in processes.read(0, rows):
                account.meet(decoded.failures)
                reasons.update({str(row): what for row, (_, what) in zip(decoded.rows, decoded.failures, strict=True)})
                content.write(decoded.pixels.numpy().data)
                for height, width in decoded.sizes:
                    place_N3[done] = place, height, width
                    place += height * width * 3
                    done += 1
            content.write(end_of_pack(place_N3, fingerprint=fingerprint, unreadable=reasons))
    finally:
        processes.close()
