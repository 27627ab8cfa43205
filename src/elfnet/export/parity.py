"""Compare exported graphs with torch: logits of every exit, and exits and predictions at every operating point."""

# Shapes: N images, E exits, C classes, K channels, H height, W width

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.errors import WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import NEVER, Policy
from elfnet.inference.bundle.manifest import Parity, PointParity
from elfnet.inference.engine import Answers

EDGE = 1e-4
"""Rounding may move a confidence that is this close to a threshold to its other side."""
TOLERANCE = 1e-4
"""Largest difference of logits relative to the largest logit (or 1); rounding differences are far smaller."""
ENGINE_POINTS = 5
"""Operating points at which the engine runs the graphs, besides the cheapest."""


def engine_points(family: Family) -> list[str]:
    """Return names of points at which to run the engine: spread over the family, and the cheapest."""
    names = family.names()
    spread = [names[i] for i in np.linspace(0, len(names) - 1, num=ENGINE_POINTS).round().astype(int)]
    cheapest = min(family.points, key=lambda point: point.expected.mean_cost).name
    return list(dict.fromkeys([*spread, cheapest]))


def compare(
    table: ExitTable, family: Family, logits_NEC: NDArray[np.float32], answers: Mapping[str, Answers]
) -> Parity:
    """Compare the exported graphs with the exit table that torch computed.

    Args:
        table: The exit table from torch.
        family: The operating points to compare at.
        logits_NEC: Logits of the exported graphs.
        answers: Answers of the engine on the graphs, by operating point. At other points the policy is applied to
            `logits_NEC`.

    Raises:
        WorkError: The logits of the graphs are not finite.
    """
    if not np.isfinite(logits_NEC).all():
        raise WorkError("the exported graphs return non-finite logits; nothing was written, train the run again")
    difference_NEC = np.abs(table.logits_NEC - logits_NEC)
    points = {}
    for point in family.points:
        wanted = _apply_policy(point.policy, table.logits_NEC)
        found = answers.get(point.name) or _apply_policy(point.policy, logits_NEC)
        differ_N = (found.exit_N != wanted.exit_N) | (found.prediction_N != wanted.prediction_N)
        edge_N = differ_N & wanted.edge_N
        points[point.name] = PointParity(differ=int(differ_N.sum()), on_the_edge=int(edge_N.sum()))
    return Parity(
        split=table.split,
        images=table.examples,
        largest_logit=float(np.abs(table.logits_NEC).max()),
        largest_difference=tuple(difference_NEC.max(axis=(0, 2)).tolist()),
        points=points,
        engine_points=tuple(name for name in family.names() if name in answers),
    )


class _Outcome(NamedTuple):
    exit_N: NDArray[np.int64]
    prediction_N: NDArray[np.int64]
    edge_N: NDArray[np.bool_]


def _apply_policy(policy: Policy, logits_NEC: NDArray[np.float32]) -> _Outcome:
    """Apply a policy to logits: exit and prediction per example, and whether rounding could change them."""
    examples = len(logits_NEC)
    exit_N, prediction_N = np.full(examples, -1), np.full(examples, -1)
    edge_N = np.zeros(examples, dtype=np.bool_)
    evidence_NC = None
    for k in range(policy.exits):
        decision = policy.decide(k, logits_NEC[:, k], evidence_NC)
        evidence_NC = decision.evidence_NC
        remaining_N = exit_N < 0
        if k < policy.exits - 1 and policy.thresholds[k] < NEVER:
            edge_N |= remaining_N & (np.abs(decision.confidence_N - policy.thresholds[k]) <= EDGE)
        leaves_N = remaining_N & decision.leaves_N
        edge_N |= leaves_N & _nearly_tied(decision.probability_NC)
        exit_N[leaves_N] = k
        prediction_N[leaves_N] = decision.prediction_N[leaves_N]
    return _Outcome(exit_N, prediction_N, edge_N)


def _nearly_tied(probability_NC: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return where the probabilities of the two best classes are equal up to `EDGE`."""
    if probability_NC.shape[1] < 2:
        return np.zeros(len(probability_NC), dtype=np.bool_)
    best_N2 = np.partition(probability_NC, -2, axis=1)[:, -2:]
    tied_N: NDArray[np.bool_] = best_N2[:, 1] - best_N2[:, 0] <= EDGE
    return tied_N


def require_parity(parity: Parity) -> None:
    """Refuse graphs that differ from torch by more than rounding explains.

    Raises:
        WorkError: The logits differ too much, or exits or predictions differ away from thresholds.
    """
    allowed = TOLERANCE * max(1.0, parity.largest_logit)
    for k, difference in enumerate(parity.largest_difference):
        if difference > allowed:
            raise WorkError(
                f"the exported graphs differ from torch: logits of exit {k + 1} by {difference:.3g} (allowed: "
                f"{allowed:.3g}) on {parity.images} images; nothing was written, try another version of torch"
            )
    for name, point in parity.points.items():
        if point.differ > point.on_the_edge:
            raise WorkError(
                f"the exported graphs differ from torch: {point.differ - point.on_the_edge} of {parity.images} images "
                f"have another exit or prediction at operating point {name!r}; nothing was written"
            )
