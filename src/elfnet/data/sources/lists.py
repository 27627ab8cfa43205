"""Image files named by a text list, a JSON annotation file or a table.

ImageNet-LT and Places-LT are published as lists, iNaturalist'18 as JSON annotations.
"""

# Shapes: N examples, C classes

import array
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.data.images.files import ImageFiles, PathTable
from elfnet.data.sources.file_listing import Listing, images_of_listings
from elfnet.data.sources.tables import read_table
from elfnet.data.types import SOURCES, Source, SourceRequest
from elfnet.errors import RequestError, WorkError
from elfnet.parsing import read_json


def read_list(file: Path, root: Path) -> Listing:
    """Read a text list with one "path label" line per image; the last space separates them, so paths may have spaces.

    If the images of every class are in a separate folder, the classes have the names of these folders; otherwise the
    names are the labels.
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
                    raise _bad_line(file, number, line, "has no label")
                path, label_text = words
                if not label_text.isdigit() or len(label_text) > 9:
                    raise _bad_line(file, number, line, f"has label {_text(label_text)!r}, which is not a class number")
                if b"\0" in path:
                    raise _bad_line(file, number, line, "has a NUL byte")
                label = int(label_text)
                folder = path.rpartition(b"/")[0]
                # An empty name means more than one folder.
                if folders.setdefault(label, folder) != folder:
                    folders[label] = b""
                text += path.strip()
                ends.append(len(text))
                labels.append(label)
    except OSError as error:
        raise WorkError(f"cannot read list {file}: {error.strerror or error}; check the path") from error
    labels_N = np.array(labels, dtype=np.int64)
    return Listing(
        origin=str(file),
        root=root,
        paths=PathTable(bytes(text), np.array(ends, dtype=np.int64)),
        labels_N=labels_N,
        label_names=_class_names(int(labels_N.max()) + 1 if len(labels_N) else 0, folders),
        numbered=True,
    )


def _refuse_binary(file: Path, block: bytes) -> None:
    """Refuse images, archives and UTF-16 by their NUL bytes; their lines would make unreadable messages."""
    place = block.find(b"\0")
    if place >= 0:
        line = block.count(b"\n", 0, place) + 1
        raise WorkError(
            f"{file} is not a text list (line {line} has a NUL byte); a list has one path and label per line"
        )


def _class_names(classes: int, folders: dict[int, bytes]) -> tuple[str, ...]:
    # A gap in the labels is refused later; a very large label must not create as many names here.
    if classes != len(folders):
        return tuple(str(label) for label in sorted(folders))
    names = [folders[label].rpartition(b"/")[2] for label in range(classes)]
    if all(names) and len(set(names)) == classes:
        return tuple(map(_text, names))
    return tuple(str(label) for label in range(classes))


def _bad_line(file: Path, number: int, line: bytes, what: str) -> WorkError:
    shown = _text(line.strip()[:80])
    return WorkError(f"line {number} of {file} {what}: {shown!r}; a line is a path, a space and an integer")


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


MAX_ANNOTATION_BYTES = 4 * 2**30
_ANNOTATION_KEYS = ("id", "file_name", "image_id", "category_id", "name")


def read_annotations(file: Path, root: Path) -> Listing:
    """Read a JSON annotation file: one example per annotation, classes by category id, names from `categories`."""
    try:
        # Unused fields are dropped while reading: half a million complete records take a gigabyte.
        content = read_json(file, max_bytes=MAX_ANNOTATION_BYTES, object_hook=_keep_needed_fields)
    except OSError as error:
        raise WorkError(f"cannot read annotations {file}: {error.strerror or error}; check the path") from error
    except ValueError as error:
        raise WorkError(f"{file} is truncated or not JSON ({error}); download it again") from error
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
        raise WorkError(f"{file} has category_id {str(wrong[0])[:40]}; number the classes with integers from 0")
    if (row := chosen.first_with_nul()) is not None:
        raise WorkError(f"annotation {row} of {file} has a NUL byte in its file_name: {chosen[row][:80]!r}; correct it")
    labels_N = np.array(labels, dtype=np.int64)
    found = np.unique(labels_N).tolist()
    names_C = [names.get(label, str(label)) for label in found]
    # Two species may have the same name; then the names are the category ids.
    unique = len(set(names_C)) == len(names_C)
    return Listing(
        origin=str(file),
        root=root,
        paths=chosen,
        labels_N=labels_N,
        label_names=tuple(names_C if unique else map(str, found)),
        numbered=True,
    )


def _keep_needed_fields(record: dict[str, Any]) -> dict[str, Any]:
    if "annotations" in record:
        return record
    return {key: record[key] for key in _ANNOTATION_KEYS if key in record}


TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")


@SOURCES.register("lists")
def lists(request: SourceRequest) -> Source[ImageFiles]:
    """Image files from a list ("path label" lines), iNaturalist JSON, CSV or Parquet (data.train, data.root)."""
    if request.train is None:
        raise RequestError(
            "source=lists needs data.train: a list file ('path label' lines), .json, .csv, .tsv or .parquet"
        )
    files = {"train": request.train, "calibration": request.calibration, "test": request.test}
    read = {
        split: read_listing(find_listing(split, file, request.root), request)
        for split, file in files.items()
        if file is not None
    }
    return images_of_listings(request, name=request.train.stem, **read)


def find_listing(split: str, file: Path, root: Path | None) -> Path:
    """Find the list, table or annotations of a split at its path, or below a root, where published lists often are.

    Raises:
        WorkError: There is no such file.
    """
    places = [file, *([] if root is None else [root / file])]
    for place in places:
        if place.exists():
            return place
    held_out = "" if split == "train" else f", or set data.{split} to an empty value to hold out training examples"
    raise WorkError(
        f"data.{split}={file}: there is no such file ({' nor '.join(map(str, places))}); correct the path of the list, "
        f"table or annotations{held_out}"
    )


def read_listing(file: Path, request: SourceRequest) -> Listing:
    """Read a list, JSON annotations or a table, by suffix; paths are relative to data.root or to the file's folder."""
    root = request.root or file.parent
    if file.suffix.lower() in TABLE_SUFFIXES:
        return read_table(
            file,
            root,
            path_column=request.path_column,
            label_column=request.label_column,
            group_column=request.group_column,
        )
    request.refuse_group_column(str(file))
    return read_annotations(file, root) if file.suffix.lower() == ".json" else read_list(file, root)
