"""The whole family: every rule, its order, its promises, and what it refuses."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.family_request import Adjust, FamilyRequest, RiskPoints
from elfnet.calibrate.fit_points import fit_family, spaced_budgets
from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.calibrate.run import results_on
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import replay

TableFactory = Callable[..., ExitTable]
HEADS = np.array([0.05, 0.2, 0.1, 0.0])


def request(**fields: Any) -> FamilyRequest:
    return FamilyRequest(**{"search": (0.5, 0.8), "budgets": (0.3, 0.6), "geometric_budgets": (0.5,), **fields})


@pytest.fixture(scope="module")
def family(make_table: TableFactory) -> Family:
    risk = RiskPoints(epsilons=(0.05, 0.1))
    return fit_family(make_table(head_cost_E=HEADS), request(floors_points=(1.0,), risk=risk))


def test_every_rule_has_its_points(family: Family) -> None:
    assert [(point.name, point.rule) for point in family.points] == [
        ("full", "full depth"),
        ("accurate", family.point("accurate").rule),
        ("economic", family.point("economic").rule),
        ("budget=0.3", "budget"),
        ("budget=0.6", "budget"),
        ("within-1", "floor"),
        ("worst-group-within-1", "floor"),
        ("risk=0.05", "risk control"),
        ("risk=0.1", "risk control"),
        ("s=0.5", "line search"),
        ("s=0.8", "line search"),
        ("geometric=0.5", "geometric"),
    ]


def test_points_keep_what_they_say(family: Family, make_table: TableFactory) -> None:
    table = make_table(head_cost_E=HEADS)
    for point in family.points:
        metrics = measure(table, replay(table, point.policy))
        assert metrics.accuracy == point.expected.accuracy
        assert metrics.mean_cost == point.expected.mean_cost
    assert family.point("budget=0.3").expected.mean_cost <= 0.3 + 1e-9
    assert family.for_budget(0.3).expected.accuracy >= family.point("budget=0.3").expected.accuracy
    full = family.point("full").expected
    within = family.point("within-1").expected
    assert within.accuracy >= full.accuracy - 0.01 - 1e-12
    assert within.mean_cost < full.mean_cost
    worst = min(value for value in full.accuracy_by_group.values() if value is not None)
    kept = family.point("worst-group-within-1").expected.accuracy_by_group.values()
    assert min(value for value in kept if value is not None) >= worst - 0.01 - 1e-12


def test_per_exit_is_never_worse_than_one_threshold(make_table: TableFactory) -> None:
    """With the same confidences, at the cost of each point of the line search."""
    table = make_table(head_cost_E=HEADS)
    searched = fit_family(table, request(search=(0.3, 0.5, 0.7, 0.9))).points
    by_line = [point for point in searched if point.rule == "line search" and point.same_as is None]
    budgets = tuple(point.expected.mean_cost for point in by_line)
    fitted = fit_family(table, request(budgets=budgets, scales="own", combine="off"))
    for point, budget in zip(by_line, budgets, strict=True):
        better = fitted.point(f"budget={budget:g}").expected
        assert better.accuracy >= point.expected.accuracy - 1e-12
        assert better.mean_cost <= budget + 1e-9


def test_promises_travel_with_their_points(family: Family) -> None:
    promise = family.point("risk=0.1").promise
    assert promise is not None
    assert (promise["epsilon"], promise["delta"], promise["simultaneous"]) == (0.1, 0.05, False)
    assert promise["n_fitted"] + promise["n_certified"] == 600
    assert "policy" not in promise
    assert family.point("budget=0.3").promise is None
    assert Family.from_dict(family.to_dict()) == family


def test_too_few_examples_for_a_promise(make_table: TableFactory) -> None:
    """A default is left out with a note; what was asked for is an error that says how many are needed."""
    table = make_table()
    family = fit_family(table, request(risk=RiskPoints(epsilons=(0.001, 0.1))))
    assert "risk=0.001" not in family.names()
    assert "risk=0.1" in family.names()
    assert any("risk=0.001 is omitted" in note and "needs at least" in note for note in family.notes)
    with pytest.raises(RequestError, match=r"epsilon=0\.001 .* needs at least \d+ examples"):
        fit_family(table, request(risk=RiskPoints(epsilons=(0.001, 0.1), required=True)))


def biased_table(make_table: TableFactory, examples: int = 1200) -> ExitTable:
    """A model whose logits hold the log prior of its training classes."""
    table = make_table(examples=examples, head_cost_E=HEADS)
    log_prior_C = np.log(table.class_counts_C / table.class_counts_C.sum())
    return replace(table, logits_NEC=(table.logits_NEC + log_prior_C).astype(np.float32))


ADJUST = Adjust(adjust="auto", taus=(0.5, 1.0, 1.5))


@pytest.mark.slow
def test_adjusted_logits_serve_every_rule(make_table: TableFactory) -> None:
    table = biased_table(make_table)
    risk = RiskPoints(epsilons=(0.1,))
    plain, adjusted = (fit_family(table, request(risk=risk, adjust=adjust)) for adjust in (Adjust(), ADJUST))
    assert plain.adjustment is None
    assert adjusted.adjustment is not None
    assert adjusted.notes[0].startswith("logits: adjusted, tau by exit 1, 1, 1, 1 (cross-validated balanced accuracy")
    for point in adjusted.points:
        assert point.policy.adjustment is not None
        # Points with a promise have theirs from the fitting part alone.
        assert point.policy.adjustment == adjusted.adjustment or point.rule == "risk control"
        assert point.policy.adjustment.log_prior == adjusted.log_prior
        metrics = measure(table, replay(table, point.policy))
        assert metrics.balanced_accuracy == pytest.approx(point.expected.balanced_accuracy, abs=1e-12)
        assert metrics.mean_cost == point.expected.mean_cost
        if point.name in plain.names():
            assert point.expected.balanced_accuracy > plain.point(point.name).expected.balanced_accuracy
    assert Family.from_dict(adjusted.to_dict()) == adjusted
    results = results_on(table, adjusted)
    right = [1.0 - (replay(table, adjusted.point("full").policy).prediction_N != table.labels_N).mean()]
    assert [results.exits[-1].accuracy] == pytest.approx(right)
    assert results.curve[-1].accuracy == pytest.approx(results.points["full"].accuracy)


@pytest.mark.slow
def test_a_promise_is_against_full_depth_with_the_same_adjustment(make_table: TableFactory) -> None:
    """A point that never loses an answer of its own full depth gains nothing from the plain one's mistakes."""
    table = biased_table(make_table, examples=3000)
    adjusted = fit_family(table, request(risk=RiskPoints(epsilons=(0.05,)), adjust=ADJUST))
    point = adjusted.point("risk=0.05")
    assert point.promise is not None
    full = replay(table, replace(point.policy, name="full", thresholds=(1.0,) * 3, combine=False))
    early = replay(table, point.policy)
    lost = float((full.prediction_N == table.labels_N).mean() - (early.prediction_N == table.labels_N).mean())
    assert lost <= 0.05
    assert point.promise["empirical_risk"] == pytest.approx(lost, abs=0.03)


def test_one_exit_with_adjusted_logits(make_table: TableFactory) -> None:
    table = biased_table(make_table)
    last = replace(table, logits_NEC=table.logits_NEC[:, -1:], cost_E=np.array([1.0]), head_cost_E=None)
    family = fit_family(last, request(adjust=ADJUST))
    assert family.adjustment is not None
    assert family.adjustment.taus == (1.0,)
    assert [note.partition(":")[0] for note in family.notes] == ["logits", "one exit"]


def test_one_exit(make_table: TableFactory) -> None:
    table = make_table(logits_NEC=make_table().logits_NEC[:, -1:], cost_E=np.array([1.0]))
    family = fit_family(table, request())
    assert family.names() == ["full", "accurate", "economic"]
    assert "nothing to decide" in family.notes[0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"budgets": (0.05,)}, "below the cheapest exit; give 0.1 or more"),
        ({"budgets": (0.5, 0.5)}, "given twice"),
        ({"floors_points": (-1.0,)}, "an accuracy loss of -1 percentage points is invalid"),
        ({"risk": RiskPoints(epsilons=(0.1, 0.1))}, "given twice"),
        ({"risk": RiskPoints(delta=0.0)}, "delta"),
        ({"scales": "best"}, "unknown scales"),
    ],
)
def test_wrong_requests(make_table: TableFactory, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        fit_family(make_table(), request(**fields))


def test_test_split_and_one_class_are_refused(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="test split is refused"):
        fit_family(make_table(split="test"), request())
    with pytest.raises(RequestError, match="of one class"):
        fit_family(make_table(labels_N=np.zeros(600, dtype=np.int64)), request())


def test_spaced_budgets(make_table: TableFactory) -> None:
    assert spaced_budgets(make_table(), 0.25) == (0.25, 0.5, 0.75, 1.0)
    assert spaced_budgets(make_table(), 0.1)[:2] == (0.1, 0.2)
    assert spaced_budgets(make_table(cost_E=np.array([0.1, 0.2, 0.3, 0.8])), 0.25) == (0.25, 0.5, 0.75)


def test_measured_time_as_cost(make_table: TableFactory) -> None:
    table = make_table(head_cost_E=HEADS)
    cost = MeasuredCost(
        stages=(1.0, 4.0, 3.0, 2.0), heads=(0.5, 9.0, 0.5, 0.1), plain=10.0, backend="x", batch=8, threads=1
    )
    timed = cost.applied_to(table)
    assert timed.cost_E == pytest.approx([0.15, 1.45, 1.8, 2.01])
    assert MeasuredCost.from_dict(cost.to_dict()) == cost
    family = fit_family(timed, request(), cost_unit=cost.unit)
    assert "batch 8" in family.cost_unit
    assert family.point("full").expected.mean_cost == pytest.approx(1.01)
    # The second head takes as long as all stages: no point within the plain network's time can use it.
    assert family.point("budget=0.6").policy.thresholds[1] == 1.0
    # Measured elsewhere, the family brings its own costs.
    test = replace(table, split="test")
    assert results_on(test, family).points["full"].mean_cost == pytest.approx(1.01)
    with pytest.raises(RequestError, match="for 4 exits, the model has 3"):
        cost.applied_to(make_table(logits_NEC=table.logits_NEC[:, 1:], cost_E=table.cost_E[1:]))
    with pytest.raises(RequestError, match="above 0"):
        replace(cost, plain=0.0)
    with pytest.raises(RequestError, match="exactly the fields"):
        MeasuredCost.from_dict({"stages": [1.0]})


def test_confusion_matrices_are_written_unless_there_are_very_many_classes(make_table: TableFactory) -> None:
    def confusion(classes: int) -> tuple[tuple[int, ...], ...] | None:
        table = make_table(
            logits_NEC=np.random.default_rng(0).normal(size=(202, 4, classes)).astype(np.float32),
            labels_N=np.arange(202) % classes,
            class_counts_C=np.full(classes, 30),
            class_names=tuple(map(str, range(classes))),
        )
        family = fit_family(table, request(budgets=(), geometric_budgets=(), floors_points=()))
        return results_on(table, family).points["full"].confusion

    assert np.sum(confusion(100) or []) == 202
    assert confusion(101) is None


@pytest.mark.slow
def test_budgets_reach_to_full_depth_without_early_heads(make_table: TableFactory) -> None:
    table = make_table(cost_E=np.array([0.2, 0.5, 1.15, 1.5]), head_cost_E=np.array([0.1, 0.05, 0.0, 0.0]))
    assert spaced_budgets(table, 0.5) == (0.5, 1.0)
    with_experts = replace(table, experts=2)
    # 1.5 less the early heads.
    assert spaced_budgets(with_experts, 0.5) == (0.5, 1.0)
    assert spaced_budgets(with_experts, 0.15)[-1] == 1.35
    assert fit_family(with_experts, request(risk=RiskPoints(epsilons=()))).plain_exit == 2
    assert fit_family(make_table(head_cost_E=HEADS), request(risk=RiskPoints(epsilons=()))).plain_exit == 3
