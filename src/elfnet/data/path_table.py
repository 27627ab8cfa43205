"""Many paths in two arrays. Half a million `str` objects would cost several times as much, and again in each worker."""

# Shapes: N paths

import os
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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

    def first_twice(self) -> tuple[int, int] | None:
        """The first path that was there before: where it stood then, and where it stands again."""
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
