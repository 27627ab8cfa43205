"""A family of many points stays readable."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.report.figures.base import RunFigure
from elfnet.report.figures.exits import MOST_POINTS, exit_shares_at_points, readable_points
from elfnet.report.record import read_run


def axes_of(figure: Any) -> Any:
    return figure.axes


def test_few_points_are_all_there_by_rising_cost(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    points = readable_points(record)
    assert set(points) == {"full", "s=0.5", "s=0.7", "s=0.9"}
    costs = [record.at(name).mean_cost for name in points]
    assert costs == sorted(costs)
    economic = record.family.point("economic").same_as
    assert economic is not None
    assert "economic" in points[economic]


def test_of_sixty_points_the_chosen_ones_and_a_few_others(make_run: Callable[..., RunDirectory]) -> None:
    record = read_run(make_run(search=[f"{0.3 + s / 100:.2f}" for s in range(60)]))
    points = readable_points(record)
    assert len(points) == MOST_POINTS
    for name in ("accurate", "economic"):
        assert record.family.point(name).same_as in points
    own = sorted(
        (name for name in record.results.points if name.startswith("s=")), key=lambda n: record.at(n).mean_cost
    )
    assert own[0] in points  # both ends
    assert own[-1] in points
    figure = exit_shares_at_points(record)
    assert isinstance(figure, RunFigure)
    assert f"{MOST_POINTS} of 61 points" in figure.caption
    panel = axes_of(figure.draw())[0]
    assert len(panel.get_yticklabels()) == MOST_POINTS


def test_points_one_would_use_come_before_those_to_compare_with(make_run: Callable[..., RunDirectory]) -> None:
    record = read_run(make_run(search=[f"{0.3 + s / 100:.2f}" for s in range(60)]))
    # As if every third had been found for a budget.
    points = tuple(
        replace(point, rule="budget") if point.name.startswith("s=") and number % 3 == 0 else point
        for number, point in enumerate(record.family.points)
    )
    record = replace(record, family=replace(record.family, points=points))
    rules = {name: record.family.point(name).rule for name in readable_points(record)}
    chosen = {point.same_as for point in record.family.points}
    assert len(rules) == MOST_POINTS
    assert all(rule in ("budget", "full depth") or name in chosen for name, rule in rules.items())


def test_a_group_without_examples_has_no_panel(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    shown = exit_shares_at_points(record)
    assert isinstance(shown, RunFigure)
    groups = [group for group, size in record.at("full").n_by_group.items() if size]
    assert [axes.get_title(loc="left") for axes in axes_of(shown.draw()) if axes.get_visible()] == ["all", *groups]
