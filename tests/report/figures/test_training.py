"""Every figure draws what it is given, in the ordinary and in the awkward case."""

from typing import Any

import pytest

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


def test_loss_by_exit_names_exits_without_examples() -> None:
    (axes,) = axes_of(draw_loss_by_exit([None, 0.25, 2.0]))
    assert [bar.get_height() for bar in axes.patches] == [0.25, 2.0]
    assert texts(axes) == ["no\nexamples", "0.25", "2"]


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
