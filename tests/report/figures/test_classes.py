"""Figures with one value per class."""

from typing import Any

import numpy as np
import pytest

from elfnet.report.figures.base import GROUP_STYLES
from elfnet.report.figures.classes import (
    accuracy_by_class,
    draw_accuracy_by_class,
    draw_class_distribution,
    running_mean,
)
from elfnet.report.record import read_run
from elfnet.run.directory import RunDirectory


def axes_of(figure: Any) -> Any:
    return figure.axes


def test_marks_are_the_metrics_in_order_of_frequency(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    (axes,) = axes_of(accuracy_by_class(record).draw())
    assert [label.get_text() for label in axes.get_yticklabels()][3:] == ["d", "e", "f"]
    marks = {line.get_label(): line for line in axes.lines}
    for point in ("full", "accurate", "economic"):
        expected = [100 * (accuracy or 0) for accuracy in record.at(point).accuracy_by_class]  # counts fall already
        assert marks[point].get_xdata().tolist() == pytest.approx(expected)


def test_a_class_without_examples_has_no_mark() -> None:
    (axes,) = axes_of(draw_accuracy_by_class(["a", "b"], {"full": [0.5, None], "economic": [0.25, None]}))
    assert np.isnan(axes.lines[0].get_xdata()[1])
    (span,) = axes.collections
    assert span.get_segments()[0].tolist() == [[25, 0], [50, 0]]


def test_many_classes_are_smoothed() -> None:
    values = np.array([float(c % 7) for c in range(60)])
    values[10] = np.nan
    expected = []
    for c in range(60):
        near = [values[i] for i in range(max(0, c - 3), min(60, c + 4)) if i != 10]
        expected.append(sum(near) / len(near))
    assert running_mean(values) == pytest.approx(expected)
    (axes,) = axes_of(draw_accuracy_by_class([str(c) for c in range(60)], {"full": (values / 100).tolist()}))
    assert len(axes.lines) == 2
    assert axes.lines[1].get_ydata()[20] == pytest.approx(expected[20])


def test_class_distribution_is_sorted_and_hatched_by_group() -> None:
    (axes,) = axes_of(draw_class_distribution(["rare", "common", "some"], [3, 200, 50], [2, 0, 1]))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["common", "some", "rare"]
    assert [bar.get_x() + bar.get_width() for bar in axes.patches] == pytest.approx([200, 50, 3])
    assert [bar.get_hatch() or "" for bar in axes.patches] == [GROUP_STYLES[g].hatch for g in ("many", "medium", "few")]
    assert axes.get_xscale() == "log"


def test_thousands_of_classes_are_one_area_a_group() -> None:
    counts = [1 + 3000 // (rank + 1) for rank in range(3000)]
    groups = [0 if count > 100 else 2 if count < 20 else 1 for count in counts]
    (axes,) = axes_of(draw_class_distribution([""] * 3000, counts, groups))
    assert len(axes.collections) == 3
    assert not axes.patches
