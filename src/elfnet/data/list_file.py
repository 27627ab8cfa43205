"""List files as ImageNet-LT and Places-LT are distributed: `relative/path label`, one example a line."""

# Shapes: N lines

import array
from pathlib import Path

import numpy as np

from elfnet.data.examples import Ints
from elfnet.data.listing import Listing
from elfnet.data.path_table import PathTable
from elfnet.errors import WorkError


def read_list(file: Path, root: Path) -> Listing:
    """Read a list file; the label is what stands behind the last blank, so that paths may have blanks.

    Classes are called like the folder their images lie in, if every class has one folder of its own; else like their
    number.
    """
    text, ends, labels = bytearray(), array.array("q"), array.array("q")
    folders: dict[int, bytes] = {}
    try:
        with file.open("rb") as lines:
            _refuse_binary(file, lines.peek())
            for number, line in enumerate(lines, start=1):
                words = line.rsplit(None, 1)
                if not words:
                    continue
                if len(words) == 1:
                    raise _wrong(file, number, line, "has no label")
                path, label_text = words
                if not label_text.isdigit() or len(label_text) > 9:
                    raise _wrong(file, number, line, f"has label {_text(label_text)!r}, which is no number of a class")
                if b"\0" in path:
                    raise _wrong(file, number, line, "has a NUL byte")
                label = int(label_text)
                folder = path.rpartition(b"/")[0]
                # An empty name stands for "more than one folder".
                if folders.setdefault(label, folder) != folder:
                    folders[label] = b""
                text += path.strip()
                ends.append(len(text))
                labels.append(label)
    except OSError as error:
        raise WorkError(f"cannot read list {file}: {error.strerror or error}; check the path") from error
    labels_N = _numbers(labels)
    return Listing(
        origin=str(file),
        root=root,
        paths=PathTable(bytes(text), _numbers(ends)),
        labels_N=labels_N,
        label_names=_names(int(labels_N.max()) + 1 if len(labels_N) else 0, folders),
        numbered=True,
    )


def _refuse_binary(file: Path, block: bytes) -> None:
    """Images, archives and UTF-16 have NUL bytes at once; their "lines" would be shown as rubbish."""
    place = block.find(b"\0")
    if place >= 0:
        line = block.count(b"\n", 0, place) + 1
        raise WorkError(f"{file} is not a text list (line {line} has a NUL byte); a list has lines of path and label")


def _numbers(values: "array.array[int]") -> Ints:
    return np.array(values, dtype=np.int64)


def _names(classes: int, folders: dict[int, bytes]) -> tuple[str, ...]:
    # A label far beyond the number of lines is a gap, which is refused later; no names are made for it.
    if classes != len(folders):
        return tuple(str(label) for label in sorted(folders))
    names = [folders[label].rpartition(b"/")[2] for label in range(classes)]
    if all(names) and len(set(names)) == classes:
        return tuple(map(_text, names))
    return tuple(str(label) for label in range(classes))


def _wrong(file: Path, number: int, line: bytes, what: str) -> WorkError:
    shown = _text(line.strip()[:80])
    return WorkError(f"line {number} of {file} {what}: {shown!r}; a line is a path, a blank and a whole number")


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
