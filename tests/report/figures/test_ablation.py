"""The t-by-s ablation from several runs."""

from collections.abc import Callable
from typing import Any

import pytest

from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import replay
from elfnet.exits.policy import Policy
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.figures.trade_off import ablation_points, runs_by_training_threshold, threshold_ablation
from elfnet.report.record import RunRecord, read_run
from elfnet.run.directory import RunDirectory


def axes_of(figure: Any) -> Any:
    return figure.axes


@pytest.fixture
def records(make_run: Callable[..., RunDirectory]) -> list[RunRecord]:
    """t = 0.9, 0.7 and 0.8; one more that differs in its seed too, and a plain one."""
    search = ("0.5", "0.7")
    runs = [
        make_run(f"t{t}", seed=seed, overrides={"exits.train_threshold": t, "exits.search": search})
        for t, seed in (("0.9", 1), ("0.7", 2), ("0.8", 3))
    ]
    other = {"exits.train_threshold": "0.6", "exits.search": search, "train.seed": 5}
    return [read_run(run) for run in (*runs, make_run("other", overrides=other), make_run("plain", exits=1))]


def test_runs_that_differ_in_t_only_by_rising_t(records: list[RunRecord]) -> None:
    assert {t: record.name for t, record in runs_by_training_threshold(records).items()} == {
        "0.7": "t0.7",
        "0.8": "t0.8",
        "0.9": "t0.9",
    }


def test_points_are_single_replays(records: list[RunRecord]) -> None:
    record = records[1]
    assert record.table is not None
    for point, s in zip(ablation_points(record, ["0.5", "0.7"]), (0.5, 0.7), strict=True):
        metrics = measure(record.table, replay(record.table, Policy("one", (s, s, s), (1.0,) * 4)))
        assert (point.s, point.mean_cost, point.accuracy) == (f"{s:g}", metrics.mean_cost, metrics.accuracy)


def test_a_line_for_each_t(records: list[RunRecord]) -> None:
    figure = threshold_ablation(records)
    assert isinstance(figure, RunFigure)
    assert "0.5, 0.7" in figure.caption
    assert "Test split, n = 240" in figure.caption
    (axes,) = axes_of(figure.draw())
    assert [line.get_label() for line in axes.lines] == ["t = 0.7", "t = 0.8", "t = 0.9"]
    expected = [100 * point.accuracy for point in ablation_points(records[0], ["0.5", "0.7"])]
    assert list(axes.lines[2].get_ydata()) == pytest.approx(expected)


def test_other_runs_make_no_ablation(records: list[RunRecord]) -> None:
    figure = threshold_ablation([records[0], records[3], records[4]])
    assert isinstance(figure, NoFigure)
    assert "exits.train_threshold" in figure.reason
