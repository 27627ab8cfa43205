"""iNaturalist'18 annotations: JSON with images, annotations and categories."""

# Shapes: N examples

import json
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.data.listing import Listing
from elfnet.data.path_table import PathTable
from elfnet.errors import WorkError

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
