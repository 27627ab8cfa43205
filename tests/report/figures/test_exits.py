"""Figures about exits, against loops over examples."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.point_family import Family
from elfnet.evaluate.metrics import calibration_error
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.figures.exits import (
    MAX_POINTS,
    confidence_in_true_class,
    draw_confidence_in_true_class,
    draw_exit_shares_at_points,
    exit_shares_at_points,
    points_to_show,
    reliability,
    reliability_by_exit,
    share_by_bin,
    true_class_confidence,
)
from elfnet.report.record import read_run
from elfnet.run.directory import RunDirectory


def axes_of(figure: Any) -> Any:
    return figure.axes


def test_few_points_are_all_there_by_rising_cost(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    points = points_to_show(record)
    assert set(points) == {"full", "s=0.5", "s=0.7", "s=0.9"}
    costs = [record.at(name).mean_cost for name in points]
    assert costs == sorted(costs)
    economic = record.family.point("economic").same_as
    assert economic is not None
    assert "economic" in points[economic]


def test_of_sixty_points_the_chosen_ones_and_a_few_others(make_run: Callable[..., RunDirectory]) -> None:
    record = read_run(make_run(search=[f"{0.3 + s / 100:.2f}" for s in range(60)]))
    points = points_to_show(record)
    assert len(points) == MAX_POINTS
    for name in ("accurate", "economic"):
        assert record.family.point(name).same_as in points
    own = sorted(
        (name for name in record.results.points if name.startswith("s=")), key=lambda n: record.at(n).mean_cost
    )
    assert own[0] in points  # both ends
    assert own[-1] in points
    figure = exit_shares_at_points(record)
    assert isinstance(figure, RunFigure)
    assert f"{MAX_POINTS} of 61 points" in figure.caption
    panel = axes_of(figure.draw())[0]
    assert len(panel.get_yticklabels()) == MAX_POINTS


def test_points_one_would_use_come_before_those_to_compare_with(make_run: Callable[..., RunDirectory]) -> None:
    record = read_run(make_run(search=[f"{0.3 + s / 100:.2f}" for s in range(60)]))
    # As if every third had been found for a budget.
    points = tuple(
        replace(point, rule="budget") if point.name.startswith("s=") and number % 3 == 0 else point
        for number, point in enumerate(record.family.points)
    )
    record = replace(record, family=replace(record.family, points=points))
    rules = {name: record.family.point(name).rule for name in points_to_show(record)}
    chosen = {point.same_as for point in record.family.points}
    assert len(rules) == MAX_POINTS
    assert all(rule in ("budget", "full depth") or name in chosen for name, rule in rules.items())


def test_a_group_without_examples_has_no_panel(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    shown = exit_shares_at_points(record)
    assert isinstance(shown, RunFigure)
    groups = [group for group, size in record.at("full").n_by_group.items() if size]
    assert [axes.get_title(loc="left") for axes in axes_of(shown.draw()) if axes.get_visible()] == ["all", *groups]


def test_bins_against_a_loop() -> None:
    rng = np.random.default_rng(3)
    confidence, correct = rng.random(300), rng.random(300) < 0.6
    found = reliability(confidence, correct, bins=10, min_size=25)
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
    found = reliability(np.array([0.25, 0.25, 0.25, 0.5, 0.5, 1.0]), np.ones(6, dtype=np.bool_), bins=2, min_size=1)
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


def test_caption_counts_the_two_kinds(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    assert record.table is not None
    figure = confidence_in_true_class(record)
    assert isinstance(figure, RunFigure)
    confidence = true_class_confidence(record.table, scale=1.0)
    head = [value for value, label in zip(confidence, record.table.labels_N, strict=True) if label in (0, 1, 2)]
    tail = [value for value, label in zip(confidence, record.table.labels_N, strict=True) if label in (3, 4, 5)]
    low, high = sum(value <= 0.1 for value in head), sum(value >= 0.9 for value in tail)
    assert f"{100 * low / len(head):.1f} % of the head examples" in figure.caption
    assert f"{100 * high / len(tail):.1f} % of the tail examples" in figure.caption
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


def test_empty_group_is_said_not_drawn() -> None:
    shares: dict[str, Any] = {"all": [[0.4, 0.6]], "many": [[0.4, 0.6]], "few": [None]}
    panels = axes_of(draw_exit_shares_at_points(["s=0.5"], shares))
    assert [panel.get_visible() for panel in panels] == [True, True, True, False]
    assert [bar.get_width() for bar in panels[0].patches] == pytest.approx([40, 60])
    assert [text.get_text() for text in panels[2].texts] == ["no examples"]
