"""Losses against full depth, and the forms that bound them."""

import numpy as np
import pytest

from elfnet.calibrate.risk.bounds import betting_p_values
from elfnet.calibrate.risk.losses import LossForm, full_depth_prediction, loss_form, outcomes_of
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import replay
from elfnet.exits.policy import Policy, full_depth, uniform_policy


def test_the_mean_loss_is_the_accuracy_lost(population: ExitTable) -> None:
    policies = [uniform_policy("a", 0.5, 3, 1.0), Policy("b", (0.9, 0.4), (2.0, 1.0, 1.0)), full_depth(3, 1.0)]
    loss_PN, mean_cost_P = outcomes_of(population, policies, "accuracy")
    full = measure(population, replay(population, policies[2]))
    for p, policy in enumerate(policies):
        metrics = measure(population, replay(population, policy))
        assert loss_PN[p].mean() == pytest.approx(full.accuracy - metrics.accuracy)
        assert mean_cost_P[p] == pytest.approx(metrics.mean_cost)
    assert set(np.unique(loss_PN)) == {-1, 0, 1}
    assert not loss_PN[2].any()


def test_disagreement_reads_no_labels_and_is_never_below_the_accuracy_lost(population: ExitTable) -> None:
    policies = [uniform_policy("a", s, 3, 1.0) for s in (0.3, 0.6, 0.8)]
    agreement_PN = outcomes_of(population, policies, "agreement").loss_PN
    early_N = replay(population, policies[1]).prediction_N
    np.testing.assert_array_equal(agreement_PN[1], early_N != population.logits_NEC[:, -1].argmax(axis=1))
    assert (agreement_PN >= outcomes_of(population, policies, "accuracy").loss_PN).all()
    np.testing.assert_array_equal(full_depth_prediction(population), population.logits_NEC[:, -1].argmax(axis=1))


def test_forms_rescale_to_the_unit_interval() -> None:
    loss_PN = np.array([[-1, 0, 1]], dtype=np.int8)
    signed, clipped = loss_form("accuracy", prefers_signed=True), loss_form("accuracy", prefers_signed=False)
    assert (signed, clipped) == (LossForm("signed", -1.0), LossForm("clipped", 0.0))
    assert loss_form("agreement", prefers_signed=True) == LossForm("agreement", 0.0)
    assert signed.unit_losses(loss_PN).tolist() == [[0.0, 0.5, 1.0]]
    assert clipped.unit_losses(loss_PN).tolist() == [[0.0, 0.0, 1.0]]
    for form in (signed, clipped):
        assert form.from_unit(form.to_unit(0.03)) == pytest.approx(0.03)
    assert signed.to_unit(0.1) == pytest.approx(0.55)


def test_betting_on_the_signed_form_is_tighter_where_exits_also_gain() -> None:
    loss_1N = np.random.default_rng(0).choice([-1, 0, 1], p=[0.05, 0.89, 0.06], size=(1, 1000)).astype(np.int8)
    signed, clipped = (
        betting_p_values(form.unit_losses(loss_1N), form.to_unit(0.06), 0.05)[0]
        for form in (LossForm("signed", -1.0), LossForm("clipped", 0.0))
    )
    assert signed < 0.05 < clipped
