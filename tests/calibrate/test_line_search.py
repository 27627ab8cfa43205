"""The line search for s and its two choices."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.calibrate.line_search import line_search
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import replay
from elfnet.exits.policy import uniform_policy

TableFactory = Callable[..., ExitTable]
CANDIDATES = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]


def test_every_candidate_is_measured(make_table: TableFactory) -> None:
    table = make_table()
    family = line_search(table, [*CANDIDATES, "1.5/C"])
    assert family.names() == [
        "full",
        "accurate",
        "economic",
        *(f"s={s:g}" for s in CANDIDATES),
        "s=1.5/C",
    ]
    for s, name in [*((s, f"s={s:g}") for s in CANDIDATES), (0.25, "s=1.5/C"), (1.0, "full")]:
        point = family.point(name)
        metrics = measure(table, replay(table, uniform_policy(name, s, 4, 2.0)))
        assert point.policy == uniform_policy(name, s, 4, 2.0)
        assert point.expected.accuracy == metrics.accuracy
        assert point.expected.accuracy_by_group == metrics.accuracy_by_group
        assert point.expected.mean_cost == metrics.mean_cost
        assert point.expected.worst_cost == metrics.worst_cost
        assert point.same_as is None
    assert (family.split, family.n, family.checkpoint_sha256) == ("calibration", 600, "a" * 64)
    assert family.confidence_scale == (2.0, 2.0, 2.0, 2.0)


def test_choices_against_a_loop(make_table: TableFactory) -> None:
    for seed in range(5):
        family = line_search(make_table(seed=seed), CANDIDATES, tolerance_points=2.0)
        eligible = [point for point in family.points if point.same_as is None]
        full = family.point("full").expected
        best = max(round(point.expected.accuracy, 9) for point in eligible)
        cheapest_of_best = min(p.expected.mean_cost for p in eligible if round(p.expected.accuracy, 9) == best)
        assert family.point("accurate").expected.accuracy == pytest.approx(best)
        assert family.point("accurate").expected.mean_cost == cheapest_of_best
        enough = [p for p in eligible if p.expected.accuracy >= full.accuracy - 0.02 - 1e-9]
        assert family.point("economic").expected.mean_cost == min(p.expected.mean_cost for p in enough)


def test_more_tolerance_is_cheaper(make_table: TableFactory) -> None:
    costs = [
        line_search(make_table(), CANDIDATES, tolerance_points=points).point("economic").expected.mean_cost
        for points in (0.0, 1.0, 5.0, 100.0)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


def test_ties_go_to_the_cheaper_point(make_table: TableFactory) -> None:
    # All exits answer alike, so every threshold is equally accurate, and leaving early costs nothing.
    table = make_table()
    table.logits_NEC[:] = table.logits_NEC[:, -1:, :]
    family = line_search(table, [0.9, 0.2, 0.5])
    assert family.point("accurate").same_as == "s=0.2"
    assert family.point("economic").same_as == "s=0.2"


def test_full_depth_is_chosen_where_every_candidate_is_worse(make_table: TableFactory) -> None:
    family = line_search(make_table(), [0.2, 0.3], tolerance_points=0.0)
    assert family.point("accurate").same_as == "full"
    assert family.point("economic").same_as == "full"
    assert family.point("accurate").policy.name == "accurate"


def test_choices_are_ruled_by_classes_not_by_examples(make_table: TableFactory) -> None:
    # 90 examples of class 0, certain and right at once; 10 of class 1, certain and wrong at first, right at the end.
    labels_N = np.array([0] * 90 + [1] * 10)
    logits_NEC = np.zeros((100, 4, 6), dtype=np.float32)
    logits_NEC[:, :, 0] = 1.0
    logits_NEC[90:, 3, 1] = 2.0
    logits_NEC[:20, 3, 2] = 2.0  # at full depth, 20 of the 90 go wrong: fewer right answers, but better balanced
    table = make_table(examples=100, labels_N=labels_N, logits_NEC=logits_NEC)
    family = line_search(table, [0.3])
    assert family.point("s=0.3").expected.accuracy > family.point("full").expected.accuracy
    assert family.point("s=0.3").expected.balanced_accuracy < family.point("full").expected.balanced_accuracy
    assert family.point("accurate").same_as == "full"


def test_confidence_scale_can_be_given(make_table: TableFactory) -> None:
    family = line_search(make_table(), [0.9], confidence_scale=(1.0, 2.0, 3.0, 4.0))
    assert family.confidence_scale == (1.0, 2.0, 3.0, 4.0)
    assert family.point("s=0.9").policy.confidence_scale == (1.0, 2.0, 3.0, 4.0)


def test_the_test_split_is_refused(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="calibrating on the test split is refused"):
        line_search(make_table(split="test"), CANDIDATES)


def test_other_refusals(make_table: TableFactory) -> None:
    table = make_table()
    with pytest.raises(RequestError, match="no examples to calibrate on"):
        line_search(make_table(examples=0), CANDIDATES)
    with pytest.raises(RequestError, match="no candidates"):
        line_search(table, [])
    with pytest.raises(RequestError, match="given twice"):
        line_search(table, [0.5, "0.5"])
    with pytest.raises(RequestError, match="not between 0 and 1"):
        line_search(table, [1.5])
    for tolerance in (-1.0, float("nan")):
        with pytest.raises(RequestError, match="tolerance_points"):
            line_search(table, CANDIDATES, tolerance_points=tolerance)
