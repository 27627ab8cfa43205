"""Reading every file of a listing: which cannot be read, how large images are, and which are the same file twice."""

# Shapes: N files of all splits

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from elfnet.data.images.decode import Limits, UnreadableImageError, image_size
from elfnet.data.images.files import ImageFiles
from elfnet.data.sources.listing import Listing
from elfnet.data.types import Ints
from elfnet.errors import RequestError

SHOWN = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class DeepCheck:
    """What was found.

    Attributes:
        shorter_sides, longer_sides: Smallest, middle and largest of the images that could be read, in pixels.
        unreadable: What is wrong with each file that cannot be read.
        across_splits: Pairs of files of two splits with the same content.
        within_splits: Files whose content another file of the same split has.
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

    def lines(self) -> list[str]:
        """The same in words; of long lists the beginning."""
        shorter, longer = (" / ".join(map(str, sides)) for sides in (self.shorter_sides, self.longer_sides))
        return [
            f"files: {self.files:,}, {self.megabytes:,.1f} MB; smallest / median / largest shorter side {shorter}, "
            f"longer side {longer} pixels",
            f"unreadable: {len(self.unreadable):,}",
            *_shown(self.unreadable),
            f"same content in two splits: {len(self.across_splits):,}",
            *_shown(tuple(f"{one} = {other}" for one, other in self.across_splits)),
            f"same content within a split: {self.within_splits:,}; with different classes: {len(self.conflicting):,}",
            *_shown(tuple(f"{one} = {other}" for one, other in self.conflicting)),
        ]


def _shown(entries: tuple[str, ...]) -> list[str]:
    more = [f"  ... and {len(entries) - SHOWN:,} more"] if len(entries) > SHOWN else []
    return [f"  {entry}" for entry in entries[:SHOWN]] + more


def check_files(listings: Mapping[str, Listing], limits: Limits, *, threads: int) -> DeepCheck:
    """Read and decode every file once. Threads: decoding and hashing are C code that lets others run."""
    for one in listings.values():
        if len(one.paths) != len(one):
            raise RequestError(f"--deep reads image files, and {one.origin} has none; leave it out")
    parts = {
        split: ImageFiles(root=one.root, paths=one.paths, labels_N=one.labels_N, image_size=1)
        for split, one in listings.items()
    }
    found: list[_Found] = []
    with ThreadPoolExecutor(threads) as pool:
        for part in parts.values():
            # In runs, so that half a million results are not all asked for at once.
            for start in range(0, len(part), 4096):
                rows = range(start, min(start + 4096, len(part)))
                found += pool.map(lambda row, part=part: _look(part, row, limits), rows)
    split_N = np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])
    row_N = np.concatenate([np.arange(len(part)) for part in parts.values()])
    label_N = np.concatenate([part.labels_N for part in parts.values()])
    names = list(parts.values())

    def name(position: int) -> str:
        return names[int(split_N[position])].name(int(row_N[position]))

    pair_P2 = _equal_pairs([one.digest for one in found])
    differ_P = split_N[pair_P2[:, 0]] != split_N[pair_P2[:, 1]]
    conflict_P = label_N[pair_P2[:, 0]] != label_N[pair_P2[:, 1]]
    sizes = np.array([one.size for one in found if one.size is not None], dtype=np.int64).reshape(-1, 2)
    return DeepCheck(
        files=len(found),
        megabytes=round(sum(one.content_bytes for one in found) / 1e6, 1),
        shorter_sides=_three(sizes.min(axis=1)),
        longer_sides=_three(sizes.max(axis=1)),
        unreadable=tuple(one.what for one in found if one.what),
        across_splits=tuple((name(a), name(b)) for a, b in pair_P2[differ_P]),
        within_splits=int((~differ_P).sum()),
        conflicting=tuple((name(a), name(b)) for a, b in pair_P2[conflict_P]),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    digest: bytes | None
    size: tuple[int, int] | None
    content_bytes: int
    what: str


def _look(part: ImageFiles, row: int, limits: Limits) -> _Found:
    try:
        content = part.encoded(row, max_bytes=limits.max_bytes)
    except UnreadableImageError as error:
        return _Found(None, None, 0, str(error))
    digest = hashlib.blake2b(content, digest_size=16).digest()
    try:
        return _Found(digest, image_size(content, part.name(row), limits), len(content), "")
    except UnreadableImageError as error:
        return _Found(digest, None, len(content), str(error))


def _equal_pairs(digests: list[bytes | None]) -> Ints:
    """Positions (P, 2) of files with the same content: each with the first of its kind."""
    first: dict[bytes, int] = {}
    pairs = []
    for position, digest in enumerate(digests):
        if digest is not None and first.setdefault(digest, position) != position:
            pairs.append((first[digest], position))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _three(sides: Ints) -> tuple[int, int, int]:
    if not len(sides):
        return 0, 0, 0
    return int(sides.min()), int(np.median(sides)), int(sides.max())
