"""What the network takes for what: the confusion matrix, and the most confused pairs of classes with images."""

# Shapes: C classes, G rows of the matrix (classes or groups of classes), N examples of the split, R pairs, K images of
# one pair, H height, W width

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import WorkError
from elfnet.evaluate.metrics import confusion_matrix
from elfnet.report.figures.base import BLUE, FigureOrReason, NoFigure, RunFigure, label_text, new_figure, styled
from elfnet.report.figures.gallery import NO_IMAGE, image_source, raster_of, thumbnails
from elfnet.report.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_CLASSES = 30
"""With more classes than this, the matrix shows groups of classes."""
GROUPS = 20
MAX_CLASSES_WITH_NUMBERS = 12
MAX_PAIRS, MAX_IMAGES_PER_PAIR = 6, 8
DARKEST = 0.6
"""Opacity of a cell with all examples of its row; the text on it stays readable on light and dark pages."""


@dataclass(frozen=True)
class ConfusedPair:
    """Examples of one class that are taken for another.

    Attributes:
        label, answer: indices of the true and of the predicted class.
        count: number of such examples.
        of: number of examples of the true class.
    """

    label: int
    answer: int
    count: int
    of: int


def confusion_of(record: RunRecord, point: str = "full") -> NDArray[np.int64] | None:
    """Return examples by label and prediction at a point, shape (C, C); None if neither results nor table have it."""
    if (stored := record.at(point).confusion) is not None:
        return np.array(stored, dtype=np.int64)
    if record.table is None:
        return None
    return confusion_matrix(record.table.labels_N, record.replayed(point).prediction_N, record.table.classes)


def confused_pairs(confusion_CC: NDArray[np.int64], most: int = MAX_PAIRS) -> list[ConfusedPair]:
    """Return the pairs of classes with the most confused examples, at most `most`; pairs without any are left out."""
    wrong_CC = confusion_CC - np.diag(np.diag(confusion_CC))
    size_C = confusion_CC.sum(axis=1)
    order = np.argsort(-wrong_CC, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(wrong_CC)) for place in order]
    return [
        ConfusedPair(label, answer, int(wrong_CC[label, answer]), int(size_C[label]))
        for label, answer in pairs
        if wrong_CC[label, answer]
    ]


def confusion_figure(record: RunRecord) -> FigureOrReason:
    """The confusion matrix at full depth, the most frequent class on top; groups of classes if there are many."""
    name = "confusion"
    confusion_CC = confusion_of(record)
    if confusion_CC is None:
        return NoFigure(name, record.no_table)
    order_C = np.argsort(-record.class_counts, kind="stable")
    ordered_CC = confusion_CC[np.ix_(order_C, order_C)]
    names = [record.info.data.class_names[c] for c in order_C]
    caption = "Rows: true class, by training images, the most frequent on top. Columns: prediction at full depth."
    if len(names) > MAX_CLASSES:
        bounds = np.linspace(0, len(names), GROUPS + 1).round().astype(np.int64)
        ordered_CC = _grouped(ordered_CC, bounds)
        names = [f"{low + 1} to {high}" for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        caption = (
            f"{len(order_C):,} classes in {GROUPS} groups, by training images, the most frequent on top. Rows: group "
            "of the true class. Columns: group of the prediction at full depth. The diagonal holds right predictions "
            "and confusions within a group."
        )
    return RunFigure(
        name,
        "Confusion matrix",
        f"{caption} Darker: a larger share of the row. {record.measured_on}.",
        lambda: draw_confusion(ordered_CC, names),
    )


def _grouped(confusion_CC: NDArray[np.int64], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    rows_GC = np.add.reduceat(confusion_CC, bounds[:-1], axis=0)
    grouped_GG: NDArray[np.int64] = np.add.reduceat(rows_GC, bounds[:-1], axis=1)
    return grouped_GG


@styled
def draw_confusion(confusion_GG: NDArray[np.int64], names: Sequence[str]) -> "Figure":
    """Draw shares of each row as shades, with numbers in percent if there are few rows; an empty row stays empty."""
    size_G = confusion_GG.sum(axis=1, keepdims=True)
    share_GG = confusion_GG / np.maximum(size_G, 1)
    number = len(names)
    figure = new_figure(max(2.8, 1.2 + 0.24 * min(number, MAX_CLASSES_WITH_NUMBERS) if number <= 12 else 4.4))
    axes = figure.add_subplot()
    rgb = [int(BLUE[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    axes.imshow(np.dstack([*(np.full_like(share_GG, part) for part in rgb), DARKEST * share_GG]), interpolation="none")
    if number <= MAX_CLASSES_WITH_NUMBERS:
        for row, column in np.argwhere(confusion_GG > 0).tolist():
            axes.text(column, row, f"{100 * share_GG[row, column]:.0f}", ha="center", va="center", fontsize=7.5)
    step = 1 if number <= MAX_CLASSES else 2
    shown = list(range(0, number, step))
    axes.set_xticks(shown, [label_text(names[i], 12) for i in shown], rotation=90)
    axes.set_yticks(shown, [label_text(names[i], 16) for i in shown])
    if number > MAX_CLASSES_WITH_NUMBERS:
        axes.tick_params(labelsize=6.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.set_xlabel("prediction")
    axes.set_ylabel("true class")
    return figure


def confused_images(record: RunRecord, *, seed: int = 0) -> FigureOrReason:
    """Random test images of the most confused pairs; the same seed gives the same images."""
    name = "confused-images"
    read_images = image_source(record)
    if isinstance(read_images, str):
        return NoFigure(name, read_images)
    assert record.table is not None, "images need the exit table"
    confusion_CC = confusion_of(record)
    pairs = [] if confusion_CC is None else confused_pairs(confusion_CC)
    if not pairs:
        return NoFigure(name, "no test image is confused at full depth")
    index_R1K = _sample(record, pairs, seed)
    try:
        images_R1K = thumbnails(read_images, index_R1K)
    except WorkError as error:
        return NoFigure(name, f"an image cannot be read ({error})")
    names = record.info.data.class_names
    labels = [(names[pair.label], names[pair.answer], pair.count, pair.of) for pair in pairs]
    return RunFigure(
        name,
        "Most confused classes",
        f"Random images (seed {seed}) of the pairs with the most wrong predictions at full depth: true class, then the "
        f"prediction, with the number of such images. {record.measured_on}.",
        lambda: draw_confused_images(images_R1K, labels),
    )


def _sample(record: RunRecord, pairs: Sequence[ConfusedPair], seed: int) -> NDArray[np.int64]:
    """Return random positions of the images of each pair, shape (R, 1, K), padded with `NO_IMAGE`."""
    assert record.table is not None
    rng = np.random.default_rng(seed)
    labels_N, prediction_N = record.table.labels_N, record.replayed("full").prediction_N
    index_R1K = np.full((len(pairs), 1, MAX_IMAGES_PER_PAIR), NO_IMAGE, dtype=np.int64)
    for row, pair in enumerate(pairs):
        there = np.flatnonzero((labels_N == pair.label) & (prediction_N == pair.answer))
        chosen = rng.permutation(there)[:MAX_IMAGES_PER_PAIR]
        index_R1K[row, 0, : len(chosen)] = chosen
    return index_R1K


@styled
def draw_confused_images(images_R1K: NDArray[np.uint8], labels: Sequence[tuple[str, str, int, int]]) -> "Figure":
    """Draw one row of images per pair, named after the true class, the prediction and how many there are."""
    raster, down, height = raster_of(images_R1K)
    figure = new_figure(0.3 + 3.2 * raster.shape[0] / raster.shape[1])
    axes: Any = figure.add_subplot()
    axes.imshow(raster, interpolation="none")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.set_yticks(
        [row * down + height / 2 for row in range(len(labels))],
        [
            f"{label_text(label, 12)} → {label_text(answer, 12)}\n{count:,} of {of:,}"
            for label, answer, count, of in labels
        ],
        fontsize=7.5,
    )
    # Browsers set text a little wider than matplotlib measures it, and these labels are long.
    figure.get_layout_engine().set(w_pad=0.15)  # type: ignore[union-attr,call-arg]
    return figure
