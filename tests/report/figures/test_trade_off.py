"""Accuracy against cost, and the cost of single examples."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.figures.trade_off import cost_histogram, draw_cost_histogram, share_by_cost
from elfnet.report.record import read_run


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
