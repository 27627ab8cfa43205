"""All figures that run directories can be drawn from, in the order in which the page and the files show them."""

from collections.abc import Callable, Iterator, Sequence

from elfnet.report.figures.accuracy_by_class import accuracy_by_class
from elfnet.report.figures.accuracy_cost_curve import (
    accuracy_against_cost,
    accuracy_against_cost_of_runs,
    rarest_common_group,
)
from elfnet.report.figures.architecture import architecture
from elfnet.report.figures.class_distribution import class_distribution
from elfnet.report.figures.confidence_in_true_class import confidence_in_true_class
from elfnet.report.figures.cost_histogram import cost_histogram
from elfnet.report.figures.exit_shares_at_points import exit_shares_at_points
from elfnet.report.figures.exit_shares_over_epochs import exit_shares_over_epochs
from elfnet.report.figures.images_by_exit import images_by_exit
from elfnet.report.figures.loss_by_exit import loss_by_exit
from elfnet.report.figures.loss_by_exit_over_epochs import loss_by_exit_over_epochs
from elfnet.report.figures.loss_shares_over_epochs import loss_shares_over_epochs
from elfnet.report.figures.reliability import reliability_by_exit
from elfnet.report.figures.threshold_ablation import threshold_ablation
from elfnet.report.figures.training_curves import training_curves
from elfnet.report.run_figure import FigureOrReason
from elfnet.report.run_record import RunRecord

OF_ANY_RUN: tuple[Callable[[RunRecord], FigureOrReason], ...] = (
    architecture,
    class_distribution,
    confidence_in_true_class,
    accuracy_by_class,
    reliability_by_exit,
    training_curves,
)
OF_A_RUN_WITH_EXITS: tuple[Callable[[RunRecord], FigureOrReason], ...] = (
    accuracy_against_cost,
    exit_shares_at_points,
    cost_histogram,
    loss_by_exit,
    loss_by_exit_over_epochs,
    exit_shares_over_epochs,
    loss_shares_over_epochs,
    images_by_exit,
)


def figures_of_run(record: RunRecord, *, with_images: bool = True) -> Iterator[FigureOrReason]:
    """Every figure of one run; a plain network has no exits to draw."""
    for figure in (*OF_ANY_RUN, *(() if record.plain else OF_A_RUN_WITH_EXITS)):
        if with_images or figure is not images_by_exit:
            yield figure(record)


def figures_of_runs(records: Sequence[RunRecord]) -> Iterator[FigureOrReason]:
    """The figures that compare several runs."""
    if len(records) < 2:
        return
    yield accuracy_against_cost_of_runs(records)
    if (group := rarest_common_group(records)) is not None:
        yield accuracy_against_cost_of_runs(records, group)
    yield threshold_ablation(records)
