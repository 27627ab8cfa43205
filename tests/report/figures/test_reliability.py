"""Reliability by exit against a loop over bins."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.family import Family
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.evaluate.calibration_error import calibration_error
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.figures.exits import reliability, reliability_by_exit
from elfnet.report.record import read_run


def axes_of(figure: Any) -> Any:
    return figure.axes


def test_bins_against_a_loop() -> None:
    rng = np.random.default_rng(3)
    confidence, correct = rng.random(300), rng.random(300) < 0.6
    found = reliability(confidence, correct, bins=10, fewest=25)
    rows = []
    for b in range(10):
        inside = [i for i in range(300) if int(confidence[i] * 10) == b]
        if len(inside) >= 25:
            share = sum(correct[inside]) / len(inside)
            rows.append((sum(confidence[inside]) / len(inside), share, len(inside) / 300))
    assert 0 < len(rows) < 10  # the rule about small bins is at work
    assert np.column_stack([found.confidence_B, found.accuracy_B, found.share_B]) == pytest.approx(np.array(rows))
    assert found.error == calibration_error(confidence, correct, bins=10)


def test_an_edge_belongs_to_the_bin_above() -> None:
    found = reliability(np.array([0.25, 0.25, 0.25, 0.5, 0.5, 1.0]), np.ones(6, dtype=np.bool_), bins=2, fewest=1)
    assert found.share_B.tolist() == [0.5, 0.5]
    assert found.confidence_B == pytest.approx([0.25, 2 / 3])


def test_error_of_every_exit_is_that_of_the_metrics(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    figure = reliability_by_exit(record)
    assert isinstance(figure, RunFigure)
    titles = [axes.get_title(loc="left") for axes in axes_of(figure.draw())]
    assert titles == [
        f"exit {quality.exit}: error {100 * quality.calibration_error:.1f} %" for quality in record.results.exits
    ]


def test_points_with_other_scales_are_lines_of_their_own(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    points = [
        replace(point, policy=replace(point.policy, confidence_scale=(3.0,) * 4)) if point.name == "economic" else point
        for point in record.family.points
    ]
    family: Family = replace(record.family, points=tuple(points))
    figure = reliability_by_exit(replace(record, family=family))
    assert isinstance(figure, RunFigure)
    assert "Two lines" in figure.caption
    first = axes_of(figure.draw())[0]
    assert [line.get_label() for line in first.lines[1:]] == ["full", "economic"]
    assert first.lines[1].get_xdata().max() < first.lines[2].get_xdata().max()  # a larger scale is more confident


def test_without_a_table(elf_run: RunDirectory) -> None:
    assert isinstance(reliability_by_exit(replace(read_run(elf_run), table=None)), NoFigure)
