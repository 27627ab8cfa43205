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
        chosen = [paths[annotation["image_id"]] for annotation in content["annotations"]]
        names = {category["id"]: str(category["name"]) for category in content.get("categories", [])}
        labels_N = np.array(labels, dtype=np.int64).reshape(len(labels))
    except (KeyError, TypeError, ValueError) as error:
        raise WorkError(
            f"{file} is not an annotation file (missing or wrong: {error}); it needs images (id, file_name) and "
            "annotations (image_id, category_id)"
        ) from error
    classes = int(labels_N.max()) + 1 if len(labels_N) else 0
    if len(labels_N) and (labels_N.min() < 0 or classes > 10**9):
        raise WorkError(
            f"{file} has category_id {labels_N.min() if labels_N.min() < 0 else classes - 1}; number from 0"
        )
    found = np.unique(labels_N).tolist()
    names_C = [names.get(label, str(label)) for label in found]
    # Two species may share a common name; then numbers tell them apart.
    unique = len(set(names_C)) == len(names_C)
    return Listing(
        origin=str(file),
        root=root,
        paths=PathTable.of(map(str, chosen)),
        labels_N=labels_N,
        label_names=tuple(names_C if unique else map(str, found)),
        numbered=True,
    )


def _slim(record: dict[str, Any]) -> dict[str, Any]:
    if "annotations" in record:
        return record
    return {key: record[key] for key in _KEPT if key in record}
