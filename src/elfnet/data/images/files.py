"""Encoded images that are decoded when a batch needs them: compact path tables, image files and their decoder."""

# Shapes: N examples or paths, I selected ones

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.data.images.decode import Limits, decode, read_bytes
from elfnet.data.images.resize import Choose, Pixels
from elfnet.data.types import Digest, Examples, Ints
from elfnet.errors import WorkError


class PathTable:
    """Many paths in one bytes object, to save memory.

    Args:
        text: All paths, concatenated.
        end_N: End of each path in `text`.

    Example:
        >>> PathTable.of(["a.png", "b/c.png"])[1]
        'b/c.png'
    """

    def __init__(self, text: bytes, end_N: Ints) -> None:
        self.text, self.end_N = text, end_N

    @classmethod
    def of(cls, paths: Iterable[str | bytes]) -> "PathTable":
        """Make a table from single paths."""
        text, ends = bytearray(), []
        for path in paths:
            text += path if isinstance(path, bytes) else os.fsencode(path)
            ends.append(len(text))
        return cls(bytes(text), np.array(ends, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.end_N)

    def __getitem__(self, index: int) -> str:
        start = int(self.end_N[index - 1]) if index else 0
        return os.fsdecode(self.text[start : int(self.end_N[index])])

    def __iter__(self) -> Iterator[str]:
        return map(os.fsdecode, self.encoded())

    def encoded(self) -> Iterator[bytes]:
        """The paths as bytes, as the file system has them."""
        start = 0
        for end in self.end_N.tolist():
            yield self.text[start:end]
            start = end

    def first_with_nul(self) -> int | None:
        """Position of the first path with a NUL byte, which no file name can have; None if there is none."""
        place = self.text.find(b"\0")
        return None if place < 0 else int(np.searchsorted(self.end_N, place, side="right"))

    def first_duplicate(self) -> tuple[int, int] | None:
        """Both positions of the first path that occurs twice; None if all paths differ."""
        # Compare hashes first: a set of half a million paths would need the memory that this table saves.
        hash_N = np.fromiter(map(hash, self.encoded()), dtype=np.int64, count=len(self))
        hash_N.sort()
        if not (hash_N[1:] == hash_N[:-1]).any():
            return None
        first: dict[bytes, int] = {}
        for position, path in enumerate(self.encoded()):
            if first.setdefault(path, position) != position:
                return first[path], position
        return None

    def take(self, indices: Ints) -> "PathTable":
        """The paths at `indices`, in that order."""
        end_I = self.end_N[indices]
        start_I = np.concatenate(([0], self.end_N))[indices]
        text = self.text
        parts = [text[start:end] for start, end in zip(start_I.tolist(), end_I.tolist(), strict=True)]
        return PathTable(b"".join(parts), np.cumsum(end_I - start_I))


MISSING = -1  # size of a file that does not exist


class EncodedImages(Examples):
    """Examples that are encoded images (JPEG, PNG ...).

    Attributes:
        image_size: Side of the square input of the network, in pixels.
    """

    image_size: int

    @property
    def example_shape(self) -> tuple[int, int, int]:
        return self.image_size, self.image_size, 3

    @abstractmethod
    def name(self, index: int) -> str:
        """Name of an image for messages, such as its path."""

    @abstractmethod
    def encoded(self, index: int, limits: Limits) -> bytes:
        """The encoded bytes of an image; of one that is too large, at least one byte more than the limit.

        Raises:
            UnreadableImageError: If the image cannot be read.
        """

    @abstractmethod
    def stamps(self) -> NDArray[np.int64]:
        """Numbers that change if an image changes, shape (N, 2): size and modification time."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageFiles(EncodedImages):
    """Labelled image files.

    Attributes:
        root: Base directory of the paths.
        missing_files: "stop" raises for a split with a missing file; "skip" leaves that to reading the image.
    """

    root: Path
    paths: PathTable
    labels_N: Ints
    image_size: int
    groups_N: Ints | None = None
    missing_files: str = "stop"

    def take(self, indices: Ints) -> "ImageFiles":
        return ImageFiles(
            root=self.root,
            paths=self.paths.take(indices),
            labels_N=self.labels_N[indices],
            image_size=self.image_size,
            groups_N=None if self.groups_N is None else self.groups_N[indices],
            missing_files=self.missing_files,
        )

    def name(self, index: int) -> str:
        return str(self.root / self.paths[index])

    def encoded(self, index: int, limits: Limits) -> bytes:
        return read_bytes(self.root / self.paths[index], limits)

    def sizes(self) -> Ints:
        """Size of each file in bytes, shape (N,); `MISSING` for a file that does not exist."""
        return np.fromiter((size for size, _ in self._stats()), dtype=np.int64, count=len(self))

    def stamps(self) -> NDArray[np.int64]:
        return np.array(list(self._stats()), dtype=np.int64).reshape(len(self), 2)

    def _stats(self) -> Iterator[tuple[int, int]]:
        base = os.fsencode(self.root) + b"/"
        for path in self.paths.encoded():
            try:
                # os.stat and not pathlib: there may be half a million files.
                found = os.stat(path if path.startswith(b"/") else base + path)  # noqa: PTH116
            except OSError:
                yield MISSING, MISSING
            else:
                yield found.st_size, found.st_mtime_ns

    def update_fingerprint(self, digest: Digest) -> None:
        """Paths, labels and sizes; no times, so that a copy of the data has the same fingerprint."""
        sizes_N = self.sizes()
        if self.missing_files == "stop" and (sizes_N == MISSING).any():
            position = int((sizes_N == MISSING).argmax())
            count = int((sizes_N == MISSING).sum())
            others = f" (and {count - 1:,} more)" if count > 1 else ""
            raise WorkError(
                f"image {self.name(position)} is missing{others}; correct the path in the list or data.root, "
                "or set data.unreadable=skip"
            )
        digest.update(f"files {len(self)} {self.image_size}".encode())
        digest.update(self.paths.text)
        for array in (self.paths.end_N, self.labels_N, sizes_N):
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)


class ImageReader(Protocol):
    """Reads crops of images by position."""

    def name(self, index: int) -> str:
        """Name of an image for messages."""

    def part(self, index: int, choose: Choose) -> Pixels:
        """Crop the part of an image that `choose(width, height)` returns, and resize it."""


class Decoder:
    """Reads crops of encoded images by decoding them on each access."""

    def __init__(self, images: EncodedImages, limits: Limits) -> None:
        self._images, self._limits = images, limits

    def name(self, index: int) -> str:
        return self._images.name(index)

    def part(self, index: int, choose: Choose) -> Pixels:
        """Decode an image, crop the part that `choose(width, height)` returns, and resize it."""
        content = self._images.encoded(index, self._limits)
        return decode(content, self._images.name(index), self._limits, choose=choose)
