"""Every figure draws what it is given, in the ordinary and in the awkward case."""

from itertools import pairwise
from typing import Any

import pytest

from elfnet.report.figures.base import GROUP_LOOKS, literal, look
from elfnet.report.figures.classes import draw_class_distribution
from elfnet.report.figures.exits import draw_exit_shares_at_points
from elfnet.report.figures.trade_off import CurveLine, draw_accuracy_cost_curve
from elfnet.report.figures.training import (
    draw_exit_shares_over_epochs,
    draw_loss_by_exit,
    draw_loss_by_exit_over_epochs,
    draw_loss_shares_over_epochs,
    draw_training_curves,
)


def axes_of(figure: Any) -> Any:
    return figure.axes


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_curve_in_percent_with_points_and_a_plain_network_as_a_marker() -> None:
    figure = draw_accuracy_cost_curve(
        [
            CurveLine("elf", look(0), [0.2, 0.9, 1.2], [0.5, 0.7, 0.8], {"economic": (0.9, 0.7), "full": (1.2, 0.8)}),
            CurveLine("$p$", look(1), [1.0], [0.75]),
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


def test_class_distribution_is_sorted_and_hatched_by_group() -> None:
    (axes,) = axes_of(draw_class_distribution(["rare", "common", "some"], [3, 200, 50], [2, 0, 1]))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["common", "some", "rare"]
    assert [bar.get_x() + bar.get_width() for bar in axes.patches] == pytest.approx([200, 50, 3])
    assert [bar.get_hatch() or "" for bar in axes.patches] == [GROUP_LOOKS[g].hatch for g in ("many", "medium", "few")]
    assert axes.get_xscale() == "log"


def test_thousands_of_classes_are_one_area_a_group() -> None:
    counts = [1 + 3000 // (rank + 1) for rank in range(3000)]
    groups = [0 if count > 100 else 2 if count < 20 else 1 for count in counts]
    (axes,) = axes_of(draw_class_distribution([""] * 3000, counts, groups))
    assert len(axes.collections) == 3
    assert not axes.patches


def test_loss_by_exit_says_where_nobody_left() -> None:
    (axes,) = axes_of(draw_loss_by_exit([None, 0.25, 2.0]))
    assert [bar.get_height() for bar in axes.patches] == [0.25, 2.0]
    assert texts(axes) == ["nobody\nleft here", "0.25", "2"]


def test_loss_lines_break_and_zero_has_no_logarithm() -> None:
    (axes,) = axes_of(draw_loss_by_exit_over_epochs([0, 1], [[None, 2.0], [0.1, 1.0]], reweighting_from=1))
    assert axes.get_yscale() == "log"
    first, second, switch = axes.lines
    assert [value == value for value in first.get_ydata()] == [False, True]
    assert second.get_ydata().tolist() == [2.0, 1.0]
    assert list(switch.get_xdata()) == [0.5, 0.5]
    (axes,) = axes_of(draw_loss_by_exit_over_epochs([0], [[0.0, 2.0]]))
    assert axes.get_yscale() == "linear"
    draw_loss_by_exit_over_epochs([0], [[None, None]])


def test_training_shares_reach_one_hundred() -> None:
    (axes,) = axes_of(draw_exit_shares_over_epochs([0, 1, 2], [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]))
    assert len(axes.collections) == 2
    top = axes.collections[1].get_paths()[0].get_extents()
    assert (top.x0, top.x1, top.y1) == (-0.5, 2.5, pytest.approx(100))


def test_empty_group_is_said_not_drawn() -> None:
    shares: dict[str, Any] = {"all": [[0.4, 0.6]], "many": [[0.4, 0.6]], "few": [None]}
    panels = axes_of(draw_exit_shares_at_points(["s=0.5"], shares))
    assert [panel.get_visible() for panel in panels] == [True, True, True, False]
    assert [bar.get_width() for bar in panels[0].patches] == pytest.approx([40, 60])
    assert texts(panels[2]) == ["no examples"]


def test_training_curves_leave_out_epochs_that_were_not_evaluated() -> None:
    figure = draw_training_curves(
        [0, 1, 2], loss_S=[3, 2, 1], learning_rate_S=[0.1, 0.1, 0.01], accuracy_S=[0.1, None, 0.5], reweighting_from=2
    )
    loss, rate, accuracy = axes_of(figure)
    assert list(accuracy.lines[0].get_xdata()) == [0, 2]
    assert list(accuracy.lines[0].get_ydata()) == pytest.approx([10, 50])
    assert rate.get_yscale() == "log"
    assert all(list(axes.lines[1].get_xdata()) == [1.5, 1.5] for axes in axes_of(figure))
    assert texts(loss) == ["re-weighting from here"]


def test_loss_shares_in_percent() -> None:
    (axes,) = axes_of(
        draw_loss_shares_over_epochs([0, 1], low_confidence_head_S=[0.1, 0.2], high_confidence_tail_S=[None, 0.4])
    )
    assert axes.lines[0].get_ydata() == pytest.approx([10, 20])
    assert axes.lines[1].get_ydata()[1] == pytest.approx(40)


def test_looks_of_neighbours_differ_in_more_than_colour() -> None:
    looks = [look(position) for position in range(28)]
    assert len({(one.colour, str(one.line)) for one in looks}) == 28
    for one, other in pairwise(looks):
        assert one.colour != other.colour
        assert one.line != other.line
        assert one.marker != other.marker
        assert one.hatch != other.hatch
    groups = list(GROUP_LOOKS.values())[1:]
    assert len({one.hatch for one in groups}) == len({one.marker for one in groups}) == 3


def test_labels_are_one_short_line_without_mathematics() -> None:
    assert literal("a\nb  $x$") == r"a b \$x\$"
    assert literal("x" * 50, 10) == "x" * 9 + "…"
