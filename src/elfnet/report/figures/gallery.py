"""Test images by class and exit, from the first exit (easy) to the last (hard)."""

# Shapes: N examples of the split, M of them, E exits, R rows (classes shown), K images of one class at one exit,
# H height, W width, C colour channels

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elfnet.data.build import load_splits
from elfnet.data.images.files import EncodedImages
from elfnet.data.images.transforms import images_as_evaluated
from elfnet.data.sources.cifar import CIFAR10, CIFAR100
from elfnet.data.sources.download import data_places
from elfnet.data.types import Examples, LabelledImages
from elfnet.errors import RequestError, WorkError
from elfnet.recipe.schema import DataRecipe
from elfnet.report.figures.base import FigureOrReason, NoFigure, RunFigure, label_text, new_figure, styled
from elfnet.report.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ROWS = 10
MAX_IMAGES_PER_ROW = 12
MAX_SIDE = 48
"""In pixels; larger images are scaled down to keep the page small."""
NO_IMAGE = -1
_GAP, _EXIT_GAP = 2, 8
_EMPTY = (128, 128, 128, 70)
_WRONG = "#d55e00"
_DOWNLOADED = {release.name: release for release in (CIFAR10, CIFAR100)}

ImageSource = Callable[[NDArray[np.int64]], NDArray[np.uint8]]
"""Function from positions in the exit table, shape (M,), to images as the network sees them, shape (M, H, W, C)."""


def image_source(record: RunRecord) -> ImageSource | str:
    """Return a function that reads the images of the exit table, or one line that says why there are none.

    Nothing is downloaded to draw a figure.
    """
    if record.table is None:
        return record.no_table
    data = record.recipe.data
    if not is_local(data):
        return f"the images of {data.source} were not found on this machine; set ELFNET_DATA to their directory"
    try:
        splits = load_splits(data)
    except (RequestError, WorkError) as error:
        return f"the images cannot be read ({error})"
    if splits.fingerprint != record.info.data.fingerprint:
        return f"the images on this machine differ from those that {record.name} was trained and measured on"
    by_name = {"train": splits.train, "calibration": splits.calibration, "test": splits.test}
    examples: Examples = by_name[record.table.split]
    # Equal fingerprints mean equal splits; this finds a table of another run.
    if not np.array_equal(examples.labels_N, record.table.labels_N):
        return f"the exit table of {record.name} does not belong to the {record.table.split} images"
    if isinstance(examples, LabelledImages):
        return partial(np.take, examples.images_NHWC, axis=0)
    if isinstance(examples, EncodedImages):
        return partial(_decoded, data, examples)
    return f"{data.source} has feature vectors, not images"


def _decoded(data: DataRecipe, images: EncodedImages, index_M: NDArray[np.int64]) -> NDArray[np.uint8]:
    return images_as_evaluated(data, images.take(index_M))


def is_local(data: DataRecipe) -> bool:
    """Return whether this source can be read without a download."""
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


@dataclass(frozen=True, eq=False)
class Gallery:
    """The content of the figure.

    Attributes:
        names: class names, one per row.
        images_REK: thumbnails with transparency, shape (R, E, K, H, W, 4).
        wrong_REK: whether the prediction is wrong.
        taken_E: number of examples of the split that take each exit.
    """

    names: tuple[str, ...]
    images_REK: NDArray[np.uint8]
    wrong_REK: NDArray[np.bool_]
    taken_E: tuple[int, ...]


def images_by_exit(record: RunRecord, *, seed: int = 0) -> FigureOrReason:
    """Random test images by class and exit; the same seed gives the same images."""
    name = "images-by-exit"
    if record.plain:
        return NoFigure(name, f"{record.name} is a plain network: it has one exit only")
    read_images = image_source(record)
    if isinstance(read_images, str):
        return NoFigure(name, read_images)
    assert record.table is not None, "images need the exit table"
    point = gallery_point(record)
    replayed = record.replayed(point)
    class_R = shown_classes(record.class_counts)
    index_REK = sample_images(replayed.exit_N, record.table.labels_N, class_R, exits=record.exits, seed=seed)
    try:
        images_REK = thumbnails(read_images, index_REK)
    except WorkError as error:
        return NoFigure(name, f"an image cannot be read ({error})")
    wrong_N = replayed.prediction_N != record.table.labels_N
    gallery = Gallery(
        names=tuple(record.info.data.class_names[c] for c in class_R),
        images_REK=images_REK,
        wrong_REK=np.where(index_REK == NO_IMAGE, False, wrong_N[index_REK]),
        taken_E=tuple(np.bincount(replayed.exit_N, minlength=record.exits).tolist()),
    )
    which = (
        "" if len(class_R) == record.info.data.classes else f" {len(class_R)} of {record.info.data.classes:,} classes."
    )
    return RunFigure(
        name,
        "Easy and hard images",
        f"Random images (seed {seed}) by the exit they take at the {record.point_label(point)} point. Frame: wrong "
        f"prediction; grey: no more images at this exit. Classes by frequency, the most frequent on top.{which} "
        f"{record.measured_on}.",
        lambda: draw_images_by_exit(gallery),
    )


def gallery_point(record: RunRecord) -> str:
    """Return the economic point; if it has no early exits, the point with the most even exit shares."""
    if record.at("economic").exit_share[-1] < 1:
        return "economic"
    return max(record.family.names(), key=lambda name: min(record.at(name).exit_share))


def shown_classes(class_counts_C: NDArray[np.int64]) -> list[int]:
    """Return at most `MAX_ROWS` classes at equal steps of rank, most frequent first."""
    order_C = np.argsort(-class_counts_C, kind="stable")
    steps = np.linspace(0, len(order_C) - 1, min(MAX_ROWS, len(order_C))).round().astype(np.int64)
    return [int(c) for c in order_C[steps]]


def sample_images(
    exit_N: NDArray[np.int64], labels_N: NDArray[np.int64], classes: Sequence[int], *, exits: int, seed: int
) -> NDArray[np.int64]:
    """Return random positions of images by class and exit, shape (R, E, K), padded with `NO_IMAGE`."""
    rng = np.random.default_rng(seed)
    index_REK = np.full((len(classes), exits, max(1, MAX_IMAGES_PER_ROW // exits)), NO_IMAGE, dtype=np.int64)
    for row, label in enumerate(classes):
        for k in range(exits):
            there = rng.permutation(np.flatnonzero((labels_N == label) & (exit_N == k)))[: index_REK.shape[2]]
            index_REK[row, k, : len(there)] = there
    return index_REK


def thumbnails(read_images: ImageSource, index_REK: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the images at these positions, shape (R, E, K, H, W, 4), grey for `NO_IMAGE`."""
    from PIL import Image

    shown_REK = index_REK != NO_IMAGE
    pixels_MHWC = read_images(index_REK[shown_REK])
    height, width = pixels_MHWC.shape[1:3]
    shrink = min(1.0, MAX_SIDE / max(height, width))
    size = (max(1, round(width * shrink)), max(1, round(height * shrink)))
    answer = np.empty((*index_REK.shape, size[1], size[0], 4), dtype=np.uint8)
    answer[:] = _EMPTY
    for place, pixels in zip(np.argwhere(shown_REK), pixels_MHWC, strict=True):
        image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        if shrink < 1:
            image = image.resize(size, Image.Resampling.LANCZOS)
        answer[tuple(place)] = np.asarray(image.convert("RGBA"))
    return answer


def raster_of(images_REK: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int, int]:
    """Return all images as one raster, which keeps the page small, the distance of its rows, and an image's height."""
    rows, exits, number, height, width, _ = images_REK.shape
    down, across = height + _GAP, width + _GAP
    exit_width = number * across + _EXIT_GAP
    raster = np.zeros((rows * down - _GAP, exits * exit_width - _EXIT_GAP - _GAP, 4), dtype=np.uint8)
    for row, k, position in np.ndindex(rows, exits, number):
        top, left = row * down, k * exit_width + position * across
        raster[top : top + height, left : left + width] = images_REK[row, k, position]
    return raster, down, height


@styled
def draw_images_by_exit(gallery: Gallery) -> "Figure":
    """Draw all images with frames and names on top."""
    from matplotlib.patches import Rectangle

    rows, exits, number, height, width, _ = gallery.images_REK.shape
    raster, down, _ = raster_of(gallery.images_REK)
    across, exit_width = width + _GAP, number * (width + _GAP) + _EXIT_GAP
    figure = new_figure(0.6 + 3.75 * raster.shape[0] / raster.shape[1])
    axes = figure.add_subplot()
    for row, k, position in np.ndindex(rows, exits, number):
        top, left = row * down, k * exit_width + position * across
        if gallery.wrong_REK[row, k, position]:
            frame = Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor=_WRONG, linewidth=1.3)
            axes.add_patch(frame)
    axes.imshow(raster, interpolation="none")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_yticks([row * down + height / 2 for row in range(rows)], [label_text(name, 14) for name in gallery.names])
    axes.xaxis.tick_top()
    hardness = {0: "easy", exits - 1: "hard"}
    axes.set_xticks(
        [k * exit_width + number * across / 2 for k in range(exits)],
        [
            f"exit {k + 1}" + (f" ({hardness[k]})" if k in hardness else "") + f"\n{taken:,} images"
            for k, taken in enumerate(gallery.taken_E)
        ],
    )
    return figure
