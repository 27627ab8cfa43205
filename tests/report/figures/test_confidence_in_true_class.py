"""Confidence in the true class, head against tail, against a loop over examples."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.recipe.load import load_recipe
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.figures.exits import (
    confidence_in_true_class,
    draw_confidence_in_true_class,
    loss_scale,
    share_by_bin,
    true_class_confidence,
)
from elfnet.report.record import head_classes, read_run


def axes_of(figure: Any) -> Any:
    return figure.axes


def test_probability_of_the_label_at_the_last_exit(elf_run: RunDirectory) -> None:
    table = read_run(elf_run).table
    assert table is not None
    expected = []
    for logits_EC, label in zip(table.logits_NEC.tolist(), table.labels_N.tolist(), strict=True):
        exponentials = [math.exp(2.5 * logit) for logit in logits_EC[-1]]
        expected.append(exponentials[label] / sum(exponentials))
    assert true_class_confidence(table, scale=2.5).tolist() == pytest.approx(expected)


def test_bins_hold_at_most_and_at_least() -> None:
    shares = share_by_bin(np.array([0.0, 0.1, 0.1000001, 0.5, 0.89, 0.9, 1.0, 1.0]))
    assert shares == pytest.approx([2 / 8, 1 / 8, 0, 0, 1 / 8, 0, 0, 0, 1 / 8, 3 / 8])
    assert share_by_bin(np.array([])) is None


def test_halves_by_frequency_with_ties_by_label() -> None:
    assert head_classes(np.array([5, 9, 5, 1, 5])).tolist() == [True, True, True, False, False]


def test_cosines_take_the_scale_of_the_loss() -> None:
    assert loss_scale(load_recipe("cifar10-lt/elf-ldam-drw")) == 30
    assert loss_scale(load_recipe("cifar10-lt/elf-ce-drw")) == 1


def test_caption_counts_the_two_kinds(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    assert record.table is not None
    figure = confidence_in_true_class(record)
    assert isinstance(figure, RunFigure)
    confidence = true_class_confidence(record.table, scale=1.0)
    head = [value for value, label in zip(confidence, record.table.labels_N, strict=True) if label in (0, 1, 2)]
    tail = [value for value, label in zip(confidence, record.table.labels_N, strict=True) if label in (3, 4, 5)]
    low, high = sum(value <= 0.1 for value in head), sum(value >= 0.9 for value in tail)
    assert f"{100 * low / len(head):.1f} % of the head's" in figure.caption
    assert f"{100 * high / len(tail):.1f} % of the tail's" in figure.caption
    assert "Test split, n = 240 (head 120, tail 120)" in figure.caption


def test_bars_are_percent_side_by_side() -> None:
    (axes,) = axes_of(draw_confidence_in_true_class({"head": [0.1] * 10, "tail": [0.0] * 9 + [1.0]}))
    bars = axes.patches
    assert [bar.get_height() for bar in bars[:10]] == pytest.approx([10] * 10)
    assert bars[19].get_height() == 100
    assert bars[9].get_x() + bars[9].get_width() <= bars[19].get_x() + 1e-9
    assert {bar.get_hatch() for bar in bars[:10]} != {bar.get_hatch() for bar in bars[10:]}


def test_without_a_table_one_line_says_so(elf_run: RunDirectory) -> None:
    figure = confidence_in_true_class(replace(read_run(elf_run), table=None))
    assert isinstance(figure, NoFigure)
    assert "no exit table of the test split; run 'elfnet evaluate" in figure.reason
    assert "\n" not in figure.reason
