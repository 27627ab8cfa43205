"""The images behind an exit table, from the data on this machine: nothing is downloaded to draw a figure."""

# Shapes: N examples of the split, M of them, H height, W width, C colour channels

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elfnet.data.cifar_releases import CIFAR10, CIFAR100
from elfnet.data.examples import Examples
from elfnet.data.from_recipe import load_splits
from elfnet.data.image_files import EncodedImages
from elfnet.data.places import data_places
from elfnet.data.preparation_from_recipe import images_as_evaluated
from elfnet.data.source import LabelledImages
from elfnet.errors import RequestError, WorkError
from elfnet.recipe.schema import DataRecipe
from elfnet.report.run_record import RunRecord

_DOWNLOADED = {release.name: release for release in (CIFAR10, CIFAR100)}

PixelsOf = Callable[[NDArray[np.int64]], NDArray[np.uint8]]
"""From positions in the exit table, shape (M,), to images as the network sees them, shape (M, H, W, C)."""


def images_of(record: RunRecord) -> PixelsOf | str:
    """What gives the images of the record's exit table, or one line that says why there are none."""
    if record.table is None:
        return record.no_table
    data = record.recipe.data
    if not is_here(data):
        return f"the images of {data.source} are not known to be on this machine; name their place in ELFNET_DATA"
    try:
        splits = load_splits(data)
    except (RequestError, WorkError) as error:
        return f"the images cannot be read ({error})"
    if splits.fingerprint != record.info["data"].get("fingerprint"):
        return f"the images on this machine are not those that {record.name} was trained and measured on"
    by_name = {"train": splits.train, "calibration": splits.calibration, "test": splits.test}
    examples: Examples = by_name[record.table.split]
    # An equal fingerprint is of equal splits; this is about a table that was swapped.
    if not np.array_equal(examples.labels_N, record.table.labels_N):
        return f"the exit table of {record.name} is not of the {record.table.split} images"
    if isinstance(examples, LabelledImages):
        return partial(np.take, examples.images_NHWC, axis=0)
    if isinstance(examples, EncodedImages):
        return partial(_decoded, data, examples)
    return f"{data.source} has rows of numbers, not images"


def _decoded(data: DataRecipe, images: EncodedImages, index_M: NDArray[np.int64]) -> NDArray[np.uint8]:
    return images_as_evaluated(data, images.take(index_M))


def is_here(data: DataRecipe) -> bool:
    """Whether reading this source would not begin with a download."""
    if data.source == "hub":
        return False
    release = _DOWNLOADED.get(data.source)
    if release is None:
        return True
    return any(
        (place / layout.directory).is_dir() or place.name == layout.directory or (place / layout.archive).is_file()
        for place in data_places(Path(data.directory) if data.directory else None)
        for layout in release.layouts
    )
