"""Image files that a list, a table or annotations name: ImageNet-LT, Places-LT, iNaturalist'18, any CSV or Parquet."""

# Shapes: N lines
# Shapes: N examples

import array
import json
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.data.images.files import ImageFiles, PathTable
from elfnet.data.sources.listing import Listing, images_of_listings
from elfnet.data.sources.tables import read_table
from elfnet.data.types import SOURCES, Ints, Source, SourceRequest
from elfnet.errors import RequestError, WorkError


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


_KEPT = ("id", "file_name", "image_id", "category_id", "name")


def read_annotations(file: Path, root: Path) -> Listing:
    """Read an annotation file: one example an annotation, classes by category id, called as `categories` say."""
    try:
        # Only what is needed is kept of each record while reading: half a million whole ones take a gigabyte.
        content = json.loads(file.read_bytes(), object_hook=_slim)
    except OSError as error:
        raise WorkError(f"cannot read annotations {file}: {error.strerror or error}; check the path") from error
    except ValueError as error:
        raise WorkError(f"{file} is truncated or not JSON ({error}); get the file again") from error
    try:
        paths = {image["id"]: image["file_name"] for image in content["images"]}
        labels = [annotation["category_id"] for annotation in content["annotations"]]
        chosen = PathTable.of(str(paths[annotation["image_id"]]) for annotation in content["annotations"])
        names = {category["id"]: str(category["name"]) for category in content.get("categories", [])}
    except (KeyError, TypeError, ValueError) as error:
        raise WorkError(
            f"{file} is not an annotation file (missing or wrong: {error}); it needs images (id, file_name) and "
            "annotations (image_id, category_id)"
        ) from error
    wrong = [label for label in labels if type(label) is not int or not 0 <= label < 10**9]
    if wrong:
        raise WorkError(f"{file} has category_id {str(wrong[0])[:40]}; number classes with whole numbers from 0 on")
    if (row := chosen.first_with_nul()) is not None:
        raise WorkError(f"annotation {row} of {file} has a NUL byte in its file_name: {chosen[row][:80]!r}; correct it")
    labels_N = np.array(labels, dtype=np.int64)
    found = np.unique(labels_N).tolist()
    names_C = [names.get(label, str(label)) for label in found]
    # Two species may share a common name; then numbers tell them apart.
    unique = len(set(names_C)) == len(names_C)
    return Listing(
        origin=str(file),
        root=root,
        paths=chosen,
        labels_N=labels_N,
        label_names=tuple(names_C if unique else map(str, found)),
        numbered=True,
    )


def _slim(record: dict[str, Any]) -> dict[str, Any]:
    if "annotations" in record:
        return record
    return {key: record[key] for key in _KEPT if key in record}


TABLES = (".csv", ".tsv", ".parquet")


@SOURCES.register("lists")
def lists(request: SourceRequest) -> Source[ImageFiles]:
    """Image files by list ("path label" lines), iNaturalist JSON, CSV or Parquet (data.train, data.test, data.root)."""
    if request.train is None:
        raise RequestError(
            "source=lists needs data.train: a list file ('path label' lines), .json, .csv, .tsv or .parquet"
        )
    files = {"train": request.train, "calibration": request.calibration, "test": request.test}
    read = {
        split: read_listing(_found(split, file, request), request) for split, file in files.items() if file is not None
    }
    return images_of_listings(request, name=request.train.stem, **read)


def _found(split: str, file: Path, request: SourceRequest) -> Path:
    """A list that is not where it was said to be may lie beside the images, as published ones often do."""
    places = [file, *([] if request.root is None else [request.root / file])]
    for place in places:
        if place.exists():
            return place
    held_out = "" if split == "train" else f", or set data.{split} to nothing (data.{split}=) to hold examples out"
    raise WorkError(
        f"data.{split}={file}: there is no such file ({' nor '.join(map(str, places))}); name the list, table or "
        f"annotations that lie there{held_out}"
    )


def read_listing(file: Path, request: SourceRequest) -> Listing:
    """A listing by its ending; paths are relative to `root`, or to where the file lies."""
    root = request.root or file.parent
    if file.suffix.lower() in TABLES:
        return read_table(
            file,
            root,
            path_column=request.path_column,
            label_column=request.label_column,
            group_column=request.group_column,
        )
    request.refuse_group_column(str(file))
    return read_annotations(file, root) if file.suffix.lower() == ".json" else read_list(file, root)
