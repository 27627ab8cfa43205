"""Image data sets of the Hugging Face hub, read with the package `datasets`. Images are decoded when they are used."""

# Shapes: N examples

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.images.decode import Limits, UnreadableImageError, read_bytes
from elfnet.data.images.files import EncodedImages
from elfnet.data.sources.file_listing import number_groups
from elfnet.data.sources.tables import missing_column
from elfnet.data.types import SOURCES, Digest, Ints, Source, SourceRequest
from elfnet.errors import RequestError, WorkError

SPLIT_NAMES = {"train": ("train",), "calibration": ("validation", "val"), "test": ("test",)}


@dataclass(frozen=True, eq=False, kw_only=True)
class HubImages(EncodedImages):
    """Rows of a hub data set with encoded images.

    Attributes:
        rows: The data set of the library, with undecoded images.
        row_N: Row of each example in it.
        image_column: Name of the column with images.
        origin: Name of data set and split, for messages.
    """

    rows: Any
    row_N: Ints
    labels_N: Ints
    image_size: int
    image_column: str
    origin: str
    groups_N: Ints | None = None

    def take(self, indices: Ints) -> "HubImages":
        return HubImages(
            rows=self.rows,
            row_N=self.row_N[indices],
            labels_N=self.labels_N[indices],
            image_size=self.image_size,
            image_column=self.image_column,
            origin=self.origin,
            groups_N=None if self.groups_N is None else self.groups_N[indices],
        )

    def name(self, index: int) -> str:
        return f"{self.origin}, row {self.row_N[index]}"

    def encoded(self, index: int, limits: Limits) -> bytes:
        found = self.rows[int(self.row_N[index])][self.image_column]
        content: bytes | None = found.get("bytes")
        if content is None and found.get("path") and Path(found["path"]).is_file():
            # The library's reader of local folders keeps paths only.
            return read_bytes(Path(found["path"]), limits)
        if content is None:
            raise UnreadableImageError(f"{self.name(index)} has no bytes; use a data set that contains the images")
        return content

    def stamps(self) -> NDArray[np.int64]:
        """The row numbers and zeros; the content is identified by the library's own fingerprint."""
        return np.stack([self.row_N, np.zeros_like(self.row_N)], axis=1)

    def update_fingerprint(self, digest: Digest) -> None:
        digest.update(f"hub {self.origin} {getattr(self.rows, '_fingerprint', '')} {self.image_size}".encode())
        for array in (self.row_N, self.labels_N):
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)


@SOURCES.register("hub")
def hub(request: SourceRequest) -> Source[HubImages]:
    """A data set of the Hugging Face hub by name (data.hub); needs the package datasets."""
    if not request.hub:
        raise RequestError("source=hub needs data.hub: the name of a data set")
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise RequestError(f"data.hub={request.hub} needs the package datasets: pip install datasets") from None
    try:
        found = datasets.load_dataset(request.hub)
    except Exception as error:  # the library raises exceptions of its readers and of the network
        what = str(error).strip().splitlines() or [type(error).__name__]
        raise WorkError(
            f"cannot load {request.hub!r} from the hub ({what[0]}); check the name and the network"
        ) from error
    parts: dict[str, HubImages] = {}
    class_names: tuple[str, ...] = ()
    for split, choices in SPLIT_NAMES.items():
        name = next((one for one in choices if one in found), None)
        if name is not None:
            parts[split], names = _split(datasets, found[name], f"{request.hub} {name}", request)
            class_names = class_names or names
    if "train" not in parts:
        raise WorkError(f"{request.hub!r} has no split train; it has: {', '.join(found)}; use another data set")
    if request.group_column:
        groups = number_groups({split: _groups(part, request.group_column) for split, part in parts.items()})
        parts = {split: replace(part, groups_N=groups[split]) for split, part in parts.items()}
    return Source(
        name=request.hub,
        class_names=class_names,
        train=parts["train"],
        test=parts.get("test"),
        horizontal_flip=True,
        calibration=parts.get("calibration"),
    )


def _groups(part: HubImages, column: str) -> list[str]:
    if column not in part.rows.features:
        raise missing_column(part.origin, column, "data.group_column", list(part.rows.features))
    names = list(part.rows[column])
    if None in names:
        raise WorkError(f"row {names.index(None)} of {part.origin} has no {column}; leave data.group_column out")
    return list(map(str, names))


def _split(datasets: Any, rows: Any, origin: str, request: SourceRequest) -> tuple[HubImages, tuple[str, ...]]:
    """Images and class names of a split; the image column is found by its type, the label column by its name."""
    image_column = next((name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)), None)
    if image_column is None:
        raise WorkError(f"{origin} has no image column; it has: {', '.join(rows.features)}; use another data set")
    label = rows.features.get(request.label_column)
    if not isinstance(label, datasets.ClassLabel):
        classes = [name for name, kind in rows.features.items() if isinstance(kind, datasets.ClassLabel)]
        raise WorkError(
            f"{origin} has no class column {request.label_column!r}; name one with data.label_column: "
            f"{', '.join(classes) or 'it has none'}"
        )
    labels_N = np.asarray(rows[request.label_column], dtype=np.int64)
    images = HubImages(
        rows=rows.cast_column(image_column, datasets.Image(decode=False)),
        row_N=np.arange(len(labels_N), dtype=np.int64),
        labels_N=labels_N,
        image_size=request.image_size,
        image_column=image_column,
        origin=origin,
    )
    return images, tuple(label.names)
