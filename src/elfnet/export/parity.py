"""Whether exported graphs answer as torch does: the engine on the graphs against the exit table that torch made."""

# Shapes: N images, E exits, C classes, K channels, H height, W width

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.errors import WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import NEVER, Policy
from elfnet.inference.bundle.manifest import Parity, PointParity
from elfnet.inference.engine import Answers, Backend

EDGE = 1e-4
"""A confidence this close to a threshold may fall on either side of it."""
TOLERANCE = 1e-4
"""Largest difference of logits, relative to the largest logit (or 1): float32 sums in another order stay well below."""

ENGINE_POINTS = 5


def logits_of_backend(backend: Backend, images_NKHW: NDArray[np.float32]) -> NDArray[np.float32]:
    """Logits (N, E, C) of every exit, nobody leaving."""
    features = backend.start(images_NKHW)
    logits_E = []
    for k in range(backend.exits):
        features, logits_NC = backend.run(k, features)
        logits_E.append(logits_NC)
    return np.stack(logits_E, axis=1)


def join_answers(batches: Sequence[Answers]) -> Answers:
    """Answers for batches, as if they had been one."""
    return Answers(*(np.concatenate([getattr(batch, field.name) for batch in batches]) for field in fields(Answers)))


def engine_points(family: Family) -> list[str]:
    """The points at which the engine is run for real: the first, the cheapest, and some in between."""
    names = family.names()
    spread = [names[i] for i in np.linspace(0, len(names) - 1, num=ENGINE_POINTS).round().astype(int)]
    cheapest = min(family.points, key=lambda point: point.expected.mean_cost).name
    return list(dict.fromkeys([*spread, cheapest]))


def compare(
    table: ExitTable, family: Family, logits_NEC: NDArray[np.float32], answers: Mapping[str, Answers]
) -> Parity:
    """Torch's table against the logits of the exported graphs.

    At each point the answers are those of an engine on the graphs where `answers` has them; else those that follow
    from the logits.
    """
    if not np.isfinite(logits_NEC).all():
        raise WorkError("the exported graphs give logits that are not finite; nothing was written, train the run again")
    difference_NEC = np.abs(table.logits_NEC - logits_NEC)
    points = {}
    for point in family.points:
        wanted = _decided(point.policy, table.logits_NEC)
        found = answers.get(point.name) or _decided(point.policy, logits_NEC)
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


class _Decided(NamedTuple):
    exit_N: NDArray[np.int64]
    prediction_N: NDArray[np.int64]
    edge_N: NDArray[np.bool_]


def _decided(policy: Policy, logits_NEC: NDArray[np.float32]) -> _Decided:
    """Exit and answer of each example, and whether a hair would have made them others."""
    examples = len(logits_NEC)
    exit_N, prediction_N = np.full(examples, -1), np.full(examples, -1)
    edge_N = np.zeros(examples, dtype=np.bool_)
    evidence_NC = None
    for k in range(policy.exits):
        decision = policy.decide(k, logits_NEC[:, k], evidence_NC)
        evidence_NC = decision.evidence_NC
        here_N = exit_N < 0
        if k < policy.exits - 1 and policy.thresholds[k] < NEVER:
            edge_N |= here_N & (np.abs(decision.confidence_N - policy.thresholds[k]) <= EDGE)
        leaves_N = here_N & decision.leaves_N
        edge_N |= leaves_N & _undecided(decision.probability_NC)
        exit_N[leaves_N] = k
        prediction_N[leaves_N] = decision.prediction_N[leaves_N]
    return _Decided(exit_N, prediction_N, edge_N)


def _undecided(probability_NC: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where the two best classes are as good as equal."""
    if probability_NC.shape[1] < 2:
        return np.zeros(len(probability_NC), dtype=np.bool_)
    best_N2 = np.partition(probability_NC, -2, axis=1)[:, -2:]
    undecided_N: NDArray[np.bool_] = best_N2[:, 1] - best_N2[:, 0] <= EDGE
    return undecided_N


def require_parity(parity: Parity) -> None:
    """Refuse graphs whose logits are off, or that answer otherwise where no rounding can explain it."""
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
                f"have another exit or answer at operating point {name!r}; nothing was written"
            )
