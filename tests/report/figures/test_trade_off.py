"""Accuracy against cost, and the cost of single examples."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.report.figures.base import NoFigure, RunFigure, series_style
from elfnet.report.figures.trade_off import (
    CurveLine,
    cost_histogram,
    draw_accuracy_cost_curve,
    draw_cost_histogram,
    share_by_cost,
)
from elfnet.report.record import read_run
from elfnet.run.directory import RunDirectory


def axes_of(figure: Any) -> Any:
    return figure.axes


def test_shares_by_cost_against_a_counter() -> None:
    costs = [0.5, 1.2, 0.5, 0.1, 0.5]
    assert share_by_cost(np.array(costs)) == {cost: count / 5 for cost, count in sorted(Counter(costs).items())}


def test_mean_and_shares_are_those_of_the_metrics(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    figure = cost_histogram(record)
    assert isinstance(figure, RunFigure)
    panels = dict(zip(("full", "accurate", "economic"), axes_of(figure.draw()), strict=True))
    for point, axes in panels.items():
        metrics = record.at(point)
        assert axes.get_title(loc="left") == f"{point}: mean {metrics.mean_cost:.3f}"
        heights = [bar.get_height() for bar in axes.patches]
        assert heights == pytest.approx([100 * share for share in metrics.exit_share if share])


def test_one_price_is_one_bar() -> None:
    (axes,) = axes_of(draw_cost_histogram({"full": {1.0: 1.0}}, unit="time"))
    assert [bar.get_height() for bar in axes.patches] == [100]
    assert axes.get_xlabel() == "cost (time)"


def test_nothing_to_tell_apart(elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    assert isinstance(cost_histogram(read_run(plain_run)), NoFigure)
    assert isinstance(cost_histogram(replace(read_run(elf_run), table=None)), NoFigure)


def test_curve_in_percent_with_points_and_a_plain_network_as_a_marker() -> None:
    figure = draw_accuracy_cost_curve(
        [
            CurveLine(
                "elf", series_style(0), [0.2, 0.9, 1.2], [0.5, 0.7, 0.8], {"economic": (0.9, 0.7), "full": (1.2, 0.8)}
            ),
            CurveLine("$p$", series_style(1), [1.0], [0.75]),
        ]
    )
    (axes,) = axes_of(figure)
    curve, economic, full, plain, unit = axes.lines
    assert curve.get_ydata().tolist() == pytest.approx([50, 70, 80])
    assert list(economic.get_xdata()) == [0.9]
    assert list(economic.get_ydata()) == pytest.approx([70])
    assert economic.get_marker() != full.get_marker()
    assert plain.get_linestyle() == "None"
    assert list(plain.get_ydata()) == pytest.approx([75])
    assert list(unit.get_xdata()) == [1.0, 1.0]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["elf", r"\$p\$", "full", "economic"]
