"""Damaged image files through the one decoder that training, prediction and the service share."""

import io
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from elfnet.data.images.decode import Limits, UnreadableImageError, decode
from fault_case import Outcomes, damaged

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM")
LIMITS = Limits(max_pixels=100_000, max_bytes=100_000)


def run(seed: int, count: int, _directory: Path) -> Outcomes:
    """Every file is read or refused in one line; a PNG is read only if all of its checksums are right."""
    outcomes = Outcomes()
    for case in range(count):
        rng = np.random.default_rng((seed, case))
        kind = FORMATS[case % len(FORMATS)]
        content = damaged(image(kind, rng), rng)
        try:
            pixels = decode(content, "it", LIMITS)
        except UnreadableImageError as error:
            one_line = str(error).startswith("it ") and "\n" not in str(error)
            outcomes.add(f"{kind} refused") if one_line else outcomes.fail(f"case {case}, {kind}: message {error}")
        except Exception as error:
            outcomes.fail(f"case {case}, {kind}: {error!r}")
        else:
            if pixels.dtype != np.uint8 or pixels.ndim != 3 or (kind == "PNG" and not _is_intact_png(content)):
                outcomes.fail(f"case {case}, {kind}: a damaged file was read")
            else:
                outcomes.add(f"{kind} read")
    return outcomes


def image(kind: str, rng: np.random.Generator) -> bytes:
    """A small image file of random pixels."""
    height, width = rng.integers(4, 40, 2).tolist()
    modes = {"JPEG": ("RGB", "L"), "GIF": ("P",), "PPM": ("RGB", "L")}.get(kind, ("RGB", "RGBA"))
    pixels = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    file = io.BytesIO()
    options = {"exif": _turned(rng)} if kind in ("PNG", "JPEG", "WEBP") else {}
    pixels.convert(modes[int(rng.integers(len(modes)))]).save(file, kind, **options)
    return file.getvalue()


def _turned(rng: np.random.Generator) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = int(rng.integers(1, 9))
    return exif


def _is_intact_png(content: bytes) -> bool:
    """Whether all chunks up to IEND have the right checksum; written without regard to the code under test."""
    place = 8
    while content[place + 4 : place + 8] != b"IEND":
        if place + 12 > len(content):
            return False
        end = place + 8 + int.from_bytes(content[place : place + 4], "big")
        if zlib.crc32(content[place + 4 : end]).to_bytes(4, "big") != content[end : end + 4]:
            return False
        place = end + 4
    return content[place : place + 12] == b"\0\0\0\0IEND\xaeB`\x82"
