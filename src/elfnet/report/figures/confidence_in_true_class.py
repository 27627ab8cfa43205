"""The paper's motivation: what proportion of head and of tail examples gets how much confidence in its true class."""

# Shapes: N examples, C classes, B bins of confidence

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elfnet.evaluate.derived import CHUNK_BYTES
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import probability_and_prediction
from elfnet.recipe.stages import final_recipe, loss_scale
from elfnet.report import number_text as say
from elfnet.report.figures.style import BLUE, PAPER, in_house_style, new_figure
from elfnet.report.head_and_tail import HALVES, head_classes
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 10
LOW, HIGH = 0.1, 0.9
_LOOKS = {"head": (BLUE, ""), "tail": ("#e69f00", "////")}


def confidence_in_true_class(record: RunRecord) -> FigureOrReason:
    name = "confidence-in-true-class"
    if record.table is None:
        return NoFigure(name, record.no_table)
    scale = loss_scale(final_recipe(record.recipe))
    confidence_N = true_class_confidence(record.table, scale=scale)
    is_head_N = head_classes(record.class_counts_C)[record.table.labels_N]
    halves = {"head": confidence_N[is_head_N], "tail": confidence_N[~is_head_N]}
    scaled = "" if scale == 1 else f" Cosines times {scale:g}, as in the loss."
    return RunFigure(
        name,
        "Confidence in the true class",
        f"Probability of the true class at the last exit. {_share(halves['head'] <= LOW)} % of the head's examples get "
        f"at most {LOW:g}, {_share(halves['tail'] >= HIGH)} % of the tail's at least {HIGH:g}. {HALVES}{scaled} "
        f"{record.measured_on} ({', '.join(f'{half} {len(values):,}' for half, values in halves.items())}).",
        lambda: draw_confidence_in_true_class({half: share_by_bin(values) for half, values in halves.items()}),
    )


def true_class_confidence(table: ExitTable, *, scale: float) -> NDArray[np.float64]:
    """softmax(scale * logits)[label] at the last exit, shape (N,)."""
    confidence_N = np.empty(table.examples, dtype=np.float64)
    chunk = max(1, CHUNK_BYTES // (8 * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        probability_BC, _ = probability_and_prediction(np.asarray(table.logits_NEC[rows, -1]), scale)
        confidence_N[rows] = np.take_along_axis(probability_BC, table.labels_N[rows, None], axis=1)[:, 0]
    return confidence_N


def share_by_bin(confidence_N: NDArray[np.float64]) -> tuple[float, ...] | None:
    """Share of the examples in each tenth of confidence; None of no examples.

    Bins are closed above, so that the first is "at most 0.1"; 0.9 itself belongs to the last, "at least 0.9".
    """
    if len(confidence_N) == 0:
        return None
    inner = np.arange(1, BINS) / BINS
    bin_N = np.where(confidence_N >= HIGH, BINS - 1, np.searchsorted(inner, confidence_N, side="left"))
    return tuple((np.bincount(bin_N, minlength=BINS) / len(confidence_N)).tolist())


@in_house_style
def draw_confidence_in_true_class(shares: Mapping[str, Sequence[float] | None]) -> "Figure":
    """Two bars a bin, head and tail side by side; given as fractions of 1."""
    figure = new_figure(2.9)
    axes = figure.add_subplot()
    width = 0.42 / BINS
    for position, (half, share_B) in enumerate(shares.items()):
        if share_B is None:
            continue
        colour, hatch = _LOOKS[half]
        left = np.arange(BINS) / BINS + (position + 0.5) * width + 0.08 / BINS
        heights = [100 * share for share in share_B]
        axes.bar(left, heights, width=width, color=colour, edgecolor=PAPER, hatch=hatch, label=half)
    axes.set_xticks(np.arange(BINS + 1) / BINS)
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("confidence in the true class")
    axes.set_ylabel("examples of the half (%)")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _share(chosen_N: NDArray[np.bool_]) -> str:
    return say.percent(float(chosen_N.mean()) if len(chosen_N) else None)
