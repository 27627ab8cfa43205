"""The comparison finds what differs, forgives what lies on the edge, and refuses the rest."""

# Shapes: N images, E exits, C classes

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.line_search import fixed_points
from elfnet.calibrate.point_family import Family
from elfnet.errors import WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.export.parity import compare, engine_points, require_parity
from elfnet.inference.bundle.manifest import Parity
from elfnet.inference.engine import Answers, Engine, all_exit_logits, join_answers


class FromTable:
    """A backend whose features are the numbers of the examples, and whose logits were written down."""

    def __init__(self, logits_NEC: NDArray[np.float32]) -> None:
        self._logits_NEC = logits_NEC
        self.exits: int = logits_NEC.shape[1]

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        return images_BKHW[:, 0, 0, 0].astype(np.int64)

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        return features, self._logits_NEC[features, k]

    def run_without_head(self, _k: int, features: Any) -> Any:
        return features

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return features[stay]


def parity_of(
    table: ExitTable, family: Family, exported_NEC: NDArray[np.float32], *, with_engine: bool = True
) -> Parity:
    numbers_NKHW = np.arange(table.examples, dtype=np.float32).reshape(-1, 1, 1, 1)
    backend = FromTable(exported_NEC)
    engine = Engine(backend, family)
    answers: dict[str, Answers] = {
        name: join_answers([engine(part, operating_point=name) for part in np.split(numbers_NKHW, [7, 20])])
        for name in family.names()
    }
    return compare(table, family, all_exit_logits(backend, numbers_NKHW), answers if with_engine else {})


def test_the_same_logits(table: ExitTable, family: Family) -> None:
    parity = parity_of(table, family, table.logits_NEC)
    require_parity(parity)
    assert parity.largest_difference == (0.0, 0.0, 0.0)
    assert parity.images == 40
    assert {(point.differ, point.on_the_edge) for point in parity.points.values()} == {(0, 0)}
    assert set(parity.points) == {"full", "s=0.6", "s=0.8"}


def test_the_largest_difference_of_each_exit(table: ExitTable, family: Family) -> None:
    exported = table.logits_NEC.copy()
    exported[3, 1, 2] += 1e-5
    exported[9, 2, 0] -= 3e-5
    parity = parity_of(table, family, exported)
    assert parity.largest_difference == pytest.approx((0.0, 1e-5, 3e-5), rel=0.1)
    require_parity(parity)


def test_logits_that_are_off_are_refused(table: ExitTable, family: Family) -> None:
    exported = table.logits_NEC.copy()
    exported[5, 1, 0] += 0.01
    with pytest.raises(WorkError, match=r"logits of exit 2 by 0\.01"):
        require_parity(parity_of(table, family, exported))
    exported[5, 1, 0] = np.nan
    with np.errstate(invalid="ignore"), pytest.raises(WorkError, match="non-finite logits"):
        parity_of(table, family, exported)


def test_another_answer_is_refused_even_if_logits_seem_right(table: ExitTable, family: Family) -> None:
    """As a cut or a batch mixed up in the engine would give: logits are right, answers are not."""
    backend = FromTable(table.logits_NEC)
    numbers_NKHW = np.arange(40, dtype=np.float32).reshape(-1, 1, 1, 1)
    engine = Engine(backend, family)
    answers = {name: engine(numbers_NKHW, operating_point=name) for name in family.names()}
    wrong = answers["s=0.6"].prediction_N.copy()
    wrong[[2, 3]] = (wrong[[2, 3]] + 1) % 4
    answers["s=0.6"] = replace(answers["s=0.6"], prediction_N=wrong)
    parity = compare(table, family, table.logits_NEC, answers)
    assert (parity.points["s=0.6"].differ, parity.points["s=0.6"].on_the_edge) == (2, 0)
    with pytest.raises(WorkError, match=r"2 of 40 images have another exit or prediction at operating point 's=0.6'"):
        require_parity(parity)


@pytest.mark.parametrize("with_engine", [False, True])
def test_an_example_on_the_edge_is_counted_and_forgiven(table: ExitTable, with_engine: bool) -> None:
    """A threshold a hair above an observed confidence; exported logits that are a hair larger pass it."""
    derived = compute_confidences(table)
    row = int(derived.confidence_NE[:, 0].argsort()[20])
    family = fixed_points(table, [float(derived.confidence_NE[row, 0]) + 1e-7])
    exported = table.logits_NEC.copy()
    exported[row, 0, derived.prediction_NE[row, 0]] += 1e-5
    parity = parity_of(table, family, exported, with_engine=with_engine)
    (point,) = [parity.points[name] for name in family.names() if name != "full"]
    assert (point.differ, point.on_the_edge) == (1, 1)
    assert parity.engine_points == (tuple(family.names()) if with_engine else ())
    require_parity(parity)


@pytest.mark.parametrize("combine", [False, True])
def test_without_an_engine_the_answers_are_those_of_replay(table: ExitTable, family: Family, combine: bool) -> None:
    """Logits of other images altogether: as many differ as differ between the two replays."""
    other = replace(table, logits_NEC=np.ascontiguousarray(table.logits_NEC[::-1]))
    points = [replace(point, policy=replace(point.policy, combine=combine)) for point in family.points]
    family = replace(family, points=tuple(points))
    parity = parity_of(table, family, other.logits_NEC, with_engine=False)
    for point in family.points:
        wanted, found = replay(table, point.policy), replay(other, point.policy)
        differ = (wanted.exit_N != found.exit_N) | (wanted.prediction_N != found.prediction_N)
        assert parity.points[point.name].differ == differ.sum() > 0


def test_the_points_for_the_engine(table: ExitTable) -> None:
    family = fixed_points(table, [s / 20 for s in range(5, 20)])
    cheapest = min(family.points, key=lambda point: point.expected.mean_cost).name
    names = engine_points(family)
    assert len(names) == len(set(names)) <= 6
    assert {"full", family.names()[-1], cheapest} <= set(names)
    assert set(engine_points(fixed_points(table, []))) == {"full"}


def test_two_classes_as_good_as_equal_are_forgiven(table: ExitTable) -> None:
    logits = table.logits_NEC.copy()
    logits[0, -1] = [2.0, 2.0 + 1e-6, -1.0, -1.0]
    exported = logits.copy()
    exported[0, -1] = [2.0 + 1e-6, 2.0, -1.0, -1.0]
    close = replace(table, logits_NEC=logits)
    parity = parity_of(close, fixed_points(close, []), exported)
    assert (parity.points["full"].differ, parity.points["full"].on_the_edge) == (1, 1)
    require_parity(parity)
