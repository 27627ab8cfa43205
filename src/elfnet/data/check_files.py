"""Check image files: by their headers alone, or by reading every file (unreadable files, sizes, duplicates)."""

# Shapes: N files of all splits, P pairs of files

import hashlib
import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from elfnet.data.images.decode import Limits, UnreadableImageError, image_size, read_header
from elfnet.data.images.files import EncodedImages, ImageFiles
from elfnet.data.images.silence import silent_decoders
from elfnet.data.sources.file_listing import Listing
from elfnet.data.types import Ints
from elfnet.errors import RequestError

READ_AT_ONCE = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class DeepCheck:
    """The result of reading every file.

    Attributes:
        files: Number of files.
        megabytes: Their total size.
        shorter_sides, longer_sides: Smallest, median and largest side of the readable images, in pixels.
        unreadable: One message per file that cannot be read.
        across_splits: Pairs of files with the same content in two splits.
        within_splits: Number of files with the same content as an earlier file of their split.
        conflicting: Pairs of files with the same content and different classes.
    """

    files: int
    megabytes: float
    shorter_sides: tuple[int, int, int]
    longer_sides: tuple[int, int, int]
    unreadable: tuple[str, ...]
    across_splits: tuple[tuple[str, str], ...]
    within_splits: int
    conflicting: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON."""
        return {
            "files": self.files,
            "megabytes": self.megabytes,
            "shorter_side": dict(zip(("smallest", "median", "largest"), self.shorter_sides, strict=True)),
            "longer_side": dict(zip(("smallest", "median", "largest"), self.longer_sides, strict=True)),
            "unreadable": list(self.unreadable),
            "duplicates_across_splits": [list(pair) for pair in self.across_splits],
            "duplicates_within_splits": self.within_splits,
            "duplicates_of_different_classes": [list(pair) for pair in self.conflicting],
        }


def check_files(listings: Mapping[str, Listing], limits: Limits, *, threads: int) -> DeepCheck:
    """Read and decode every file once.

    Args:
        listings: The listing of each split by its name.
        limits: Larger images count as unreadable.
        threads: Number of threads; decoding and hashing release the global interpreter lock.

    Raises:
        RequestError: If a listing is of feature arrays, which have no files.
    """
    for one in listings.values():
        if len(one.paths) != len(one):
            raise RequestError(f"--deep reads image files, and {one.origin} has none; leave it out")
    parts = {
        split: ImageFiles(root=one.root, paths=one.paths, labels_N=one.labels_N, image_size=1)
        for split, one in listings.items()
    }
    found: list[_CheckedFile] = []
    with silent_decoders(), ThreadPoolExecutor(threads) as pool:
        for part in parts.values():
            # In chunks, so that half a million tasks are not queued at once.
            for start in range(0, len(part), READ_AT_ONCE):
                rows = range(start, min(start + READ_AT_ONCE, len(part)))
                found += pool.map(lambda row, part=part: _check_file(part, row, limits), rows)
    split_N = np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])
    row_N = np.concatenate([np.arange(len(part)) for part in parts.values()])
    label_N = np.concatenate([part.labels_N for part in parts.values()])
    splits = list(parts.values())

    def name(position: int) -> str:
        return splits[int(split_N[position])].name(int(row_N[position]))

    pair_P2 = _equal_pairs([one.digest for one in found])
    differ_P = split_N[pair_P2[:, 0]] != split_N[pair_P2[:, 1]]
    conflict_P = label_N[pair_P2[:, 0]] != label_N[pair_P2[:, 1]]
    sizes = np.array([one.size for one in found if one.size is not None], dtype=np.int64).reshape(-1, 2)
    return DeepCheck(
        files=len(found),
        megabytes=round(sum(one.content_bytes for one in found) / 1e6, 1),
        shorter_sides=_smallest_median_largest(sizes.min(axis=1)),
        longer_sides=_smallest_median_largest(sizes.max(axis=1)),
        unreadable=tuple(one.problem for one in found if one.problem),
        across_splits=tuple((name(a), name(b)) for a, b in pair_P2[differ_P]),
        within_splits=int((~differ_P).sum()),
        conflicting=tuple((name(a), name(b)) for a, b in pair_P2[conflict_P]),
    )


@dataclass(frozen=True, slots=True)
class _CheckedFile:
    """Digest of the content and size of the image, None if unknown; `problem` is empty for a readable file."""

    digest: bytes | None
    size: tuple[int, int] | None
    content_bytes: int
    problem: str


def _check_file(part: ImageFiles, row: int, limits: Limits) -> _CheckedFile:
    try:
        content = part.encoded(row, limits)
    except UnreadableImageError as error:
        return _CheckedFile(None, None, 0, str(error))
    digest = hashlib.blake2b(content, digest_size=16).digest()
    try:
        return _CheckedFile(digest, image_size(content, part.name(row), limits), len(content), "")
    except UnreadableImageError as error:
        return _CheckedFile(digest, None, len(content), str(error))


def _equal_pairs(digests: list[bytes | None]) -> Ints:
    """Positions (P, 2) of files with the same content: the first file with it and every later one."""
    first: dict[bytes, int] = {}
    pairs = []
    for position, digest in enumerate(digests):
        if digest is not None and first.setdefault(digest, position) != position:
            pairs.append((first[digest], position))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _smallest_median_largest(sides: Ints) -> tuple[int, int, int]:
    if not len(sides):
        return 0, 0, 0
    return int(sides.min()), int(np.median(sides)), int(sides.max())


GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B")
MOSTLY = 0.9
"""Share of grey images from which a data set counts as grey."""
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
