"""Risk control from end to end: its promises, what it reads, and what it refuses."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.risk.control import control_risk, control_risks
from elfnet.calibrate.risk.losses import outcomes_of
from elfnet.calibrate.risk.sequence import uniform_path
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, replay
from elfnet.exits.policy import Policy, full_depth, uniform_policy

Draw = Callable[[int, int], ExitTable]


def _few_candidates(fitting: ExitTable) -> tuple[Policy, ...]:
    return uniform_path(fitting, points=14)


def _population_loss(confidences: ExitConfidences, policy: Policy, *, agreement: bool = False) -> NDArray[np.int64]:
    """The loss of every example of the population, by its definition."""
    early_N, full_N, label_N = (
        replay(confidences, policy).prediction_N,
        confidences.prediction_NE[:, -1],
        confidences.table.labels_N,
    )
    if agreement:
        return np.where(early_N != full_N, 1, 0)
    return np.where(full_N == label_N, 1, 0) - np.where(early_N == label_N, 1, 0)


def _sorted_by_class(table: ExitTable) -> ExitTable:
    order_N = np.argsort(table.labels_N, kind="stable")
    return replace(table, logits_NEC=table.logits_NEC[order_N], labels_N=table.labels_N[order_N])


def _limit(delta: float, draws: int) -> float:
    return delta + 3 * math.sqrt(delta * (1 - delta) / draws)


@pytest.mark.slow
def test_promises_are_kept(population: ExitTable, draw: Draw) -> None:
    """Over 1,000 draws of a calibration table, at most delta of the policies lose more than epsilon in truth."""
    epsilon, delta, draws, confidences = 0.05, 0.1, 1000, compute_confidences(population)
    broken, naive_broken, saved = 0, 0, []
    for seed in range(draws):
        table = draw(300, seed)
        answer = control_risk(table, epsilon=epsilon, delta=delta, candidates=_few_candidates, seed=seed)
        broken += int(_population_loss(confidences, answer.policy).mean() > epsilon)
        saved.append(answer.cost_saved)
        if seed < 60:  # the boldest policy whose risk *looks* small enough
            path = uniform_path(table)
            within = outcomes_of(table, path, "accuracy").loss_PN.mean(axis=1) <= epsilon
            naive = path[int(np.flatnonzero(within)[-1])]
            naive_broken += int(_population_loss(confidences, naive).mean() > epsilon)
    report = f"broken in {broken} of {draws} draws; mean cost saved {np.mean(saved):.1%}"
    assert broken / draws <= _limit(delta, draws), report
    assert np.mean(saved) > 0.05, report
    # Otherwise this population would keep every promise, whoever makes it.
    assert naive_broken / 60 > _limit(delta, 60), f"without control broken in {naive_broken} of 60 draws"


@pytest.mark.parametrize(
    ("method", "procedure", "loss"),
    [
        ("betting", "upper-bound", "accuracy"),
        ("betting", "fixed-sequence", "agreement"),
        ("hoeffding-bentkus", "fixed-sequence", "agreement"),
    ],
)
def test_promises_are_kept_at_the_edge(
    population: ExitTable, draw: Draw, method: str, procedure: str, loss: str
) -> None:
    """The hardest case: a candidate that loses just a little more than epsilon, and bolder ones after it.

    The tables are sorted by class, as tables often are. The class that loses most comes last: whoever bets on the
    examples in this order has won before it begins.
    """
    epsilon, delta, draws, confidences = 0.05, 0.2, 300, compute_confidences(population)
    falling = [uniform_policy(f"{s:.3f}", s, 3, 1.0) for s in np.linspace(0.95, 0.5, 200).tolist()]
    risks = [_population_loss(confidences, policy, agreement=loss == "agreement").mean() for policy in falling]
    edge = next(p for p, risk in enumerate(risks) if risk > epsilon)
    assert risks[edge] < epsilon + 0.003
    candidates = [falling[0], falling[edge // 2], falling[edge], falling[edge + 20], falling[-1]]
    broken = sum(
        control_risk(
            _sorted_by_class(draw(300, seed)),
            epsilon=epsilon,
            delta=delta,
            candidates=candidates,
            method=method,
            procedure=procedure,
            loss=loss,
            seed=seed,
        ).n_candidates_certified
        > 2
        for seed in range(draws)
    )
    assert 0.01 < broken / draws <= _limit(delta, draws), f"broken in {broken} of {draws} draws"


def test_promises_are_kept_in_every_group(population: ExitTable, draw: Draw) -> None:
    epsilon, delta, draws, confidences = 0.1, 0.2, 120, compute_confidences(population)
    group_N = population.group_of_class[population.labels_N]
    broken = {"true": 0, "none": 0}
    saved = []
    for seed in range(draws):
        for groups in broken:
            answer = control_risk(
                draw(500, seed), epsilon=epsilon, delta=delta, candidates=_few_candidates, groups=groups, seed=seed
            )
            loss_N = _population_loss(confidences, answer.policy)
            broken[groups] += int(max(loss_N[group_N == g].mean() for g in range(3)) > epsilon)
            if groups == "true":
                saved.append(answer.cost_saved)
                assert set(answer.n_certified_by_group) == set(GROUP_NAMES)
    report = f"broken {broken} of {draws} draws; mean cost saved {np.mean(saved):.1%}"
    assert broken["true"] / draws <= _limit(delta, draws), report
    assert np.mean(saved) > 0.02, report
    assert broken["none"] / draws > 0.5, report  # a promise on average is none for the rare class


def test_what_is_reported_can_be_measured_again(draw: Draw) -> None:
    table = draw(2000, 1)
    answer = control_risk(table, epsilon=0.05, delta=0.1, procedure="upper-bound", groups="predicted", fraction=0.25)
    assert (answer.n_fitted, answer.n_certified) == (500, 1500)
    assert sum(answer.n_certified_by_group.values()) == 1500
    weighted = sum(answer.empirical_risk_by_group[g] * n for g, n in answer.n_certified_by_group.items()) / 1500
    assert answer.empirical_risk == pytest.approx(weighted)
    assert max(answer.empirical_risk_by_group.values()) < answer.bound_or_p <= 0.05
    assert 0 < answer.n_candidates_certified < answer.n_candidates
    assert answer.mean_cost < answer.full_depth_cost == 1.05
    assert answer.cost_saved == pytest.approx(1 - answer.mean_cost / 1.05)
    assert (answer.form, answer.level, answer.simultaneous) == ("signed", 0.1, False)
    assert json.loads(json.dumps(answer.to_dict()))["policy"] == answer.policy.to_dict()


def test_no_labels_are_read_for_agreement(draw: Draw) -> None:
    table = draw(1200, 2)
    without = replace(table, labels_N=np.zeros_like(table.labels_N))
    for groups in ("none", "predicted"):
        first, second = (
            control_risk(t, epsilon=0.1, delta=0.1, loss="agreement", groups=groups) for t in (table, without)
        )
        assert first == second
        assert first.n_candidates_certified > 0


def test_what_certifies_does_not_choose(draw: Draw) -> None:
    """A function for the candidates sees the fitting part only, and its order is kept."""
    table, seen = draw(600, 3), []

    def fit(fitting: ExitTable) -> list[Policy]:
        seen.append(fitting.examples)
        return [uniform_policy(f"{s}", s, 3, 1.0) for s in (0.9, 0.95, 0.0, 0.99)]

    answer = control_risk(table, epsilon=0.05, delta=0.1, candidates=fit, fraction=0.4)
    assert seen == [240]
    assert (answer.policy.name, answer.n_candidates_certified, answer.n_candidates) == ("0.95", 2, 4)
    as_list = control_risk(table, epsilon=0.05, delta=0.1, candidates=fit(table), fraction=0.4)
    assert as_list == answer


def test_full_depth_where_nothing_is_certified(draw: Draw) -> None:
    answer = control_risk(draw(600, 4), epsilon=0.05, delta=0.1, candidates=[uniform_policy("now", 0.0, 3, 1.0)])
    assert answer.policy == full_depth(3, 1.0)
    assert (answer.n_candidates_certified, answer.empirical_risk, answer.bound_or_p) == (0, 0.0, 0.0)
    assert (answer.mean_cost, answer.cost_saved) == (1.05, 0.0)


def test_one_exit_has_nothing_to_decide(draw: Draw) -> None:
    table = draw(400, 5)
    table = replace(table, logits_NEC=table.logits_NEC[:, -1:], cost_E=np.array([1.0]))
    assert control_risk(table, epsilon=0.05, delta=0.1).policy == full_depth(1, 1.0)


def test_more_risk_saves_more(draw: Draw) -> None:
    table = draw(2000, 6)
    each = control_risks(table, epsilons=[0.02, 0.05, 0.1], delta=0.1)
    assert [answer.epsilon for answer in each] == [0.02, 0.05, 0.1]
    assert each[1] == control_risk(table, epsilon=0.05, delta=0.1)
    assert (np.diff([answer.cost_saved for answer in each]) > 0).all()
    together = control_risks(table, epsilons=[0.02, 0.05, 0.1], delta=0.1, simultaneous=True)
    for alone, joint in zip(each, together, strict=True):
        assert joint.level == pytest.approx(0.1 / 3)
        assert (joint.delta, joint.simultaneous) == (0.1, True)
        assert joint.bound_or_p <= 0.1 / 3
        assert joint.n_candidates_certified <= alone.n_candidates_certified
    # A third of delta is what each promise is tested at.
    assert together[1].policy == control_risk(table, epsilon=0.05, delta=0.1 / 3).policy


def test_the_seed_decides(draw: Draw) -> None:
    table = draw(600, 7)
    assert control_risk(table, epsilon=0.05, delta=0.1, seed=3) == control_risk(table, epsilon=0.05, delta=0.1, seed=3)
    assert control_risk(table, epsilon=0.05, delta=0.1, seed=3) != control_risk(table, epsilon=0.05, delta=0.1, seed=4)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"epsilon": 0.0}, r"epsilon=0.0 must lie between 0 and 1"),
        ({"epsilon": 1.0}, r"epsilon=1.0 must lie between 0 and 1"),
        ({"epsilon": float("nan")}, r"epsilon=nan must lie"),
        ({"epsilon": "small"}, r"epsilon='small' must lie"),
        ({"delta": 0.0}, r"delta=0.0 must lie between 0 and 1"),
        ({"delta": 1.5}, r"delta=1.5 must lie"),
        ({"fraction": 1.0}, r"fraction=1.0 must lie"),
        ({"method": "bets"}, r"unknown risk control method 'bets'.*betting, hoeffding-bentkus"),
        ({"procedure": "fixed"}, r"unknown risk control procedure 'fixed'"),
        ({"loss": "acuracy"}, r"unknown risk control loss 'acuracy'; did you mean 'accuracy'"),
        ({"groups": "all"}, r"unknown grouping 'all'.*none, true, predicted"),
        ({"candidates": []}, r"risk control has no candidates"),
        ({"candidates": [uniform_policy("x", 0.5, 4, 1.0)]}, r"candidate 'x' has 4 exits, but the exit table has 3"),
    ],
)
def test_wrong_requests_are_refused(draw: Draw, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as raised:
        control_risk(draw(400, 8), **({"epsilon": 0.05, "delta": 0.1} | asked))
    assert "\n" not in str(raised.value)


def test_a_family_needs_good_epsilons(draw: Draw) -> None:
    with pytest.raises(RequestError, match="has no epsilon"):
        control_risks(draw(400, 8), epsilons=[], delta=0.1)
    with pytest.raises(RequestError, match="epsilon=2 must lie"):
        control_risks(draw(400, 8), epsilons=[0.1, 2], delta=0.1)


def test_tables_that_cannot_be_calibrated_on_are_refused(draw: Draw) -> None:
    table = draw(400, 9)
    with pytest.raises(RequestError, match="test split is refused"):
        control_risk(replace(table, split="test"), epsilon=0.05, delta=0.1)
    with pytest.raises(RequestError, match="has no examples"):
        control_risk(
            replace(table, logits_NEC=table.logits_NEC[:0], labels_N=table.labels_N[:0]), epsilon=0.05, delta=0.1
        )
    one_class = replace(table, labels_N=np.full_like(table.labels_N, 3))
    with pytest.raises(RequestError, match=r"all 400 examples .* are of one class \('d'\)"):
        control_risk(one_class, epsilon=0.05, delta=0.1)


def test_too_few_examples_say_how_many_are_needed(draw: Draw) -> None:
    table = draw(80, 10)
    with pytest.raises(
        RequestError, match=r"epsilon=0.05 at delta=0.1 needs at least 45 examples to certify on.* and 40 are left for"
    ):
        control_risk(table, epsilon=0.05, delta=0.1, method="hoeffding-bentkus")
    with pytest.raises(RequestError, match=r"delta=0.05 needs at least 59 examples"):
        control_risks(table, epsilons=[0.05, 0.2], delta=0.1, simultaneous=True, method="hoeffding-bentkus")
    for groups in ("true", "predicted"):
        with pytest.raises(
            RequestError, match=rf"45 examples of group 'few' \(by {groups} class\).* and \d+ are left for that"
        ):
            control_risk(draw(300, 10), epsilon=0.05, delta=0.1, method="hoeffding-bentkus", groups=groups)


def test_a_group_without_classes_needs_no_examples(draw: Draw) -> None:
    table = replace(draw(600, 11), few_below=0)
    answer = control_risk(table, epsilon=0.1, delta=0.1, groups="true")
    assert set(answer.n_certified_by_group) == {"many", "medium"}
