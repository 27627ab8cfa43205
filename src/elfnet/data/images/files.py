"""Images that stay on disk and are decoded when a batch needs them."""

# Shapes: N examples
# Shapes: N paths

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.data.images.decode import Limits, UnreadableImageError, read_crop
from elfnet.data.images.resize import Choose, Pixels
from elfnet.data.types import Digest, Examples, Ints
from elfnet.errors import WorkError


class PathTable:
    """Paths as one run of bytes and where each ends.

    Example:
        >>> PathTable.of(["a.png", "b/c.png"])[1]
        'b/c.png'
    """

    def __init__(self, text: bytes, end_N: Ints) -> None:
        self.text, self.end_N = text, end_N

    @classmethod
    def of(cls, paths: Iterable[str | bytes]) -> "PathTable":
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
        """The same as the file system has them."""
        start = 0
        for end in self.end_N.tolist():
            yield self.text[start:end]
            start = end

    def first_with_nul(self) -> int | None:
        """The first path with a NUL byte, which no file can have."""
        place = self.text.find(b"\0")
        return None if place < 0 else int(np.searchsorted(self.end_N, place, side="right"))

    def first_duplicate(self) -> tuple[int, int] | None:
        """Both positions of the first path that occurs twice; None if all paths differ."""
        # Hashes first: half a million paths in a set would cost as much memory as this table saves.
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


MISSING = -1  # the size of a file that is not there


class EncodedImages(Examples):
    """Images as encoded bytes (JPEG, PNG ...), by position.

    Attributes:
        image_size: Side of the square that they are brought to, in pixels.
    """

    image_size: int

    @property
    def example_shape(self) -> tuple[int, int, int]:
        return self.image_size, self.image_size, 3

    @abstractmethod
    def name(self, index: int) -> str:
        """What messages call an image: its path."""

    @abstractmethod
    def encoded(self, index: int, *, max_bytes: int) -> bytes:
        """The bytes of an image; UnreadableImageError if they are more than allowed, or cannot be read."""

    @abstractmethod
    def stamps(self) -> NDArray[np.int64]:
        """Numbers that change when an image does, shape (N, 2): size and time of the last change."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageFiles(EncodedImages):
    """Paths below a root, and labels.

    Attributes:
        missing_files: "stop" refuses a split with a file that is not there; "skip" leaves it to whoever reads it.
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

    def encoded(self, index: int, *, max_bytes: int) -> bytes:
        path = self.root / self.paths[index]
        try:
            with path.open("rb") as file:
                content = file.read(max_bytes + 1)
        except OSError as error:
            raise UnreadableImageError(f"cannot read image {path}: {error.strerror or error}") from error
        if len(content) > max_bytes:
            raise UnreadableImageError(
                f"image {path} has more than {max_bytes / 1e6:g} MB; raise data.max_megabytes if it is no mistake"
            )
        return content

    def sizes(self) -> Ints:
        """Bytes of each file, shape (N,), read from the file system; `MISSING` where there is none."""
        return np.fromiter((size for size, _ in self._stats()), dtype=np.int64, count=len(self))

    def stamps(self) -> NDArray[np.int64]:
        return np.array(list(self._stats()), dtype=np.int64).reshape(len(self), 2)

    def _stats(self) -> Iterator[tuple[int, int]]:
        base = os.fsencode(self.root) + b"/"
        for path in self.paths.encoded():
            try:
                # By hand, since there may be half a million of them.
                found = os.stat(path if path.startswith(b"/") else base + path)  # noqa: PTH116
            except OSError:
                yield MISSING, MISSING
            else:
                yield found.st_size, found.st_mtime_ns

    def update_fingerprint(self, digest: Digest) -> None:
        """Names, labels and sizes; not times, so that a copy of the data on another machine is the same data."""
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
    """Reads parts of images by position."""

    def name(self, index: int) -> str: ...

    def part(self, index: int, choose: Choose) -> Pixels: ...


class Decoder:
    """Decodes when asked."""

    def __init__(self, images: EncodedImages, limits: Limits) -> None:
        self._images, self._limits = images, limits

    def name(self, index: int) -> str:
        return self._images.name(index)

    def part(self, index: int, choose: Choose) -> Pixels:
        """The part of an image that `choose(width, height)` names, at the size it names."""
        content = self._images.encoded(index, max_bytes=self._limits.max_bytes)
        return read_crop(content, self._images.name(index), choose=choose, limits=self._limits)
