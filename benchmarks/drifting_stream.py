"""A stream of examples drawn from an exit table, whose mix drifts from the table's own to hard, to easy and back.

Hard is what has low confidence at the first exit. What an operating point does with an example is what `replay` says.
"""

# Shapes: N examples of the table, T examples of the stream, P operating points

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.confidence_scale import fit_scales
from elfnet.calibrate.line_search import measured_point
from elfnet.calibrate.per_exit_search import family_for_budgets
from elfnet.calibrate.point_family import Family
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay

LENGTH, BATCH = 120_000, 32
BUDGETS = np.round(np.arange(0.3, 1.11, 0.04), 2).tolist()
TILT = 2.5
"""How far the mix leans: a draw's weight is exp(lean * TILT * (difficulty - 1/2)), difficulty being a rank in 0..1."""
LEAN = ((0.0, 0.0), (0.15, 0.0), (0.35, 1.0), (0.5, 1.0), (0.7, -1.0), (0.85, -1.0), (0.85, 0.0), (1.0, 0.0))
"""(share of the stream, lean): +1 is hard, -1 easy, 0 as in the table; linear between, with one jump at the end."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Which example comes when, and what every operating point would do with each example of the table."""

    family: Family
    drawn_T: NDArray[np.int64]
    cost_PN: dict[str, NDArray[np.float64]]
    correct_PN: dict[str, NDArray[np.bool_]]


def synthetic_table(split: str, rng: np.random.Generator) -> ExitTable:
    """Later exits are more often right, and examples differ in how hard they are."""
    examples, exits, classes = 6_000, 4, 10
    labels_N = np.arange(examples) % classes
    logits_NEC = rng.normal(size=(examples, exits, classes)).astype(np.float32)
    ease_N1 = rng.gamma(2.0, 0.5, size=(examples, 1))
    logits_NEC[np.arange(examples), :, labels_N] += (ease_N1 * np.linspace(1.5, 5.0, exits)).astype(np.float32)
    return ExitTable(
        logits_NEC=logits_NEC,
        labels_N=labels_N,
        cost_E=np.array([0.0750, 0.4861, 0.8373, 1.1628]),
        plain_multiply_adds=68_900_000,
        class_counts_C=np.array([5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]),
        class_names=tuple(str(c) for c in range(classes)),
        split=split,
        checkpoint_sha256="synthetic",
        confidence_scale=1.0,
        many_above=100,
        few_below=20,
    )


def make_stream(calibration: ExitTable, test: ExitTable, rng: np.random.Generator) -> Stream:
    """The drifting stream."""
    scales = fit_scales(calibration)
    derived = compute_confidences(calibration, scales)
    points = [measured_point(derived, policy, rule="budget") for policy in family_for_budgets(derived, BUDGETS)]
    family = Family.of(calibration, points, confidence_scale=scales)
    seen = compute_confidences(test, scales)
    replays = {point.name: replay(seen, point.policy) for point in family.points}
    first_N = seen.confidence_NE[:, 0]
    difficulty_N = np.argsort(np.argsort(-first_N)) / len(first_N)
    shares, leans = zip(*LEAN, strict=True)
    drawn = []
    for start in range(0, LENGTH, BATCH):
        lean = float(np.interp(start / LENGTH, shares, leans))
        weight_N = np.exp(lean * TILT * (difficulty_N - 0.5))
        drawn.append(rng.choice(len(first_N), size=BATCH, p=weight_N / weight_N.sum()))
    return Stream(
        family=family,
        drawn_T=np.concatenate(drawn),
        cost_PN={name: answer.cost_N for name, answer in replays.items()},
        correct_PN={name: answer.prediction_N == test.labels_N for name, answer in replays.items()},
    )


def run(
    stream: Stream, point: Callable[[], str], report: Callable[[int, NDArray[np.float64]], object]
) -> tuple[NDArray[np.float64], float]:
    """Cost of every example of the stream, shape (T,), and accuracy; `report` gets position and costs of each batch."""
    costs, correct = [], 0
    for start in range(0, LENGTH, BATCH):
        drawn, name = stream.drawn_T[start : start + BATCH], point()
        cost_N = stream.cost_PN[name][drawn]
        costs.append(cost_N)
        correct += int(stream.correct_PN[name][drawn].sum())
        report(start, cost_N)
    return np.concatenate(costs), correct / LENGTH
