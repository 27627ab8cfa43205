"""Images to try, from a folder: found once at the start, named by number, so that no path comes from outside."""

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from elfnet.errors import RequestError

SHOWN = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp"}
"""Formats that browsers show."""

MOST_SAMPLES = 60
MOST_BYTES = 2_000_000


@dataclass(frozen=True)
class Sample:
    name: str
    content: bytes
    media_type: str


def read_samples(folder: Path | None) -> tuple[Sample, ...]:
    """The first images of a folder by name, at most `MOST_SAMPLES`; what is large or no image is left out."""
    if folder is None:
        return ()
    if not folder.is_dir():
        raise RequestError(f"--samples {folder} is not a folder; name one with images")
    samples: list[Sample] = []
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        if len(samples) == MOST_SAMPLES:
            break
        if path.stat().st_size > MOST_BYTES:
            continue
        try:
            with Image.open(path, formats=tuple(SHOWN)) as picture:
                media_type = SHOWN[str(picture.format)]
        except (OSError, ValueError, KeyError, Image.DecompressionBombError):
            continue
        samples.append(Sample(path.name.encode(errors="replace").decode(), path.read_bytes(), media_type))
    if not samples:
        raise RequestError(f"--samples {folder} holds no image of {', '.join(SHOWN)} below {MOST_BYTES:,} bytes")
    return tuple(samples)
