"""The confusion matrix and the most confused pairs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.report.figures import confusion
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.figures.confusion import (
    ConfusedPair,
    confused_images,
    confused_pairs,
    confusion_figure,
    confusion_of,
    draw_confusion,
)
from elfnet.report.record import read_run
from elfnet.run.directory import RunDirectory


def opacity(figure: Any) -> Any:
    (axes,) = figure.axes
    return np.asarray(axes.images[0].get_array())[..., 3]


def test_pairs_are_sorted_by_their_number_and_never_right() -> None:
    confusion_CC = np.array([[50, 3, 0], [7, 1, 0], [0, 3, 9]])
    assert confused_pairs(confusion_CC) == [
        ConfusedPair(1, 0, 7, 8),
        ConfusedPair(0, 1, 3, 53),
        ConfusedPair(2, 1, 3, 12),
    ]
    assert confused_pairs(confusion_CC, most=1) == [ConfusedPair(1, 0, 7, 8)]
    assert confused_pairs(np.diag([3, 4])) == []


def test_shades_are_shares_of_the_row() -> None:
    figure = draw_confusion(np.array([[3, 1], [0, 0]]), ["a", "b"])
    assert opacity(figure) == pytest.approx(confusion.DARKEST * np.array([[0.75, 0.25], [0.0, 0.0]]))
    assert [text.get_text() for text in figure.axes[0].texts] == ["75", "25"]


def test_the_matrix_is_ordered_by_training_images(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    reversed_counts = record.info.data.model_copy(update={"class_counts": record.info.data.class_counts[::-1]})
    record = replace(record, info=record.info.model_copy(update={"data": reversed_counts}))
    figure = confusion_figure(record)
    assert isinstance(figure, RunFigure)
    found = confusion_of(record)
    assert found is not None
    share_CC = found[::-1, ::-1] / found[::-1].sum(axis=1, keepdims=True)
    assert opacity(figure.draw()) == pytest.approx(confusion.DARKEST * share_CC)


def test_many_classes_are_grouped(make_run: Callable[..., RunDirectory]) -> None:
    counts = np.geomspace(1000, 5, 61).astype(int).tolist()
    record = read_run(make_run(names=[f"class {c}" for c in range(61)], counts=counts, examples=244))
    figure = confusion_figure(record)
    assert isinstance(figure, RunFigure)
    assert "61 classes in 20 groups" in figure.caption
    shown = opacity(figure.draw())
    assert shown.shape == (20, 20)
    # Every group has examples, and all of them are somewhere in its row.
    assert shown.sum(axis=1) == pytest.approx(np.full(20, confusion.DARKEST))


def test_images_that_are_not_there_are_explained(elf_run: RunDirectory) -> None:
    found = confused_images(replace(read_run(elf_run), table=None))
    assert isinstance(found, NoFigure)
    assert "has no exit table of the test split" in found.reason
