"""The inference rule (eq. 5), against loops and by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from elfnet.errors import RequestError
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import (
    NEVER,
    Measure,
    Policy,
    certainty_and_prediction,
    confidence_and_prediction,
    full_depth,
    scale_per_exit,
    uniform_policy,
)


def naive_confidence(logits: list[float], scale: float) -> float:
    exponentials = [math.exp(scale * logit) for logit in logits]
    return max(exponentials) / sum(exponentials)


def test_confidence_is_the_largest_softmax_probability() -> None:
    logits_NC = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    for scale in (0.3, 1.0, 30.0):
        confidence_N, prediction_N = confidence_and_prediction(logits_NC, scale)
        expected = [naive_confidence(row, scale) for row in logits_NC.astype(float).tolist()]
        np.testing.assert_allclose(confidence_N, expected, rtol=1e-12)
        assert prediction_N.tolist() == [row.index(max(row)) for row in logits_NC.tolist()]
        assert confidence_N.dtype == np.float64


def test_confidence_stays_within_its_bounds() -> None:
    huge = np.array([[1e30, -1e30, 0.0], [88.0, 88.0, 88.0], [-3e38, -3e38, 3e38]], dtype=np.float32)
    confidence_N, prediction_N = confidence_and_prediction(huge, 30.0)
    np.testing.assert_array_equal(confidence_N, [1.0, 1.0 / 3.0, 1.0])
    assert prediction_N.tolist() == [0, 0, 2]


def test_confidence_of_logits_that_are_not_finite_is_nan() -> None:
    logits_NC = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0]], dtype=np.float32)
    confidence_N, _ = confidence_and_prediction(logits_NC, 1.0)
    np.testing.assert_array_equal(confidence_N, [np.nan, np.nan, 1.0])


def test_decide_exit_by_exit_equals_first_exit_and_a_loop() -> None:
    rng = np.random.default_rng(1)
    logits_NEC = rng.normal(scale=2.0, size=(200, 4, 5)).astype(np.float32)
    policy = Policy("p", (0.8, 0.5, 0.6), (0.5, 1.0, 2.0, 3.0))
    expected = []
    for example in logits_NEC.astype(float).tolist():
        for k in range(4):
            if k == 3 or naive_confidence(example[k], policy.confidence_scale[k]) > policy.thresholds[k]:
                expected.append(k)
                break
    assert set(expected) == {0, 1, 2, 3}

    confidence_NE = np.stack([policy.decide(k, logits_NEC[:, k]).confidence_N for k in range(4)], axis=1)
    assert policy.first_exit(confidence_NE).tolist() == expected

    taken_N = np.full(200, -1)
    staying = np.arange(200)
    for k in range(4):
        decision = policy.decide(k, logits_NEC[staying, k])
        taken_N[staying[decision.leaves_N]] = k
        staying = staying[~decision.leaves_N]
    assert taken_N.tolist() == expected


def test_confidence_equal_to_the_threshold_stays() -> None:
    policy = Policy("p", (0.5,), (1.0, 1.0))
    assert policy.first_exit(np.array([[0.5, 0.1], [np.nextafter(0.5, 1.0), 0.1]])).tolist() == [1, 0]
    assert policy.decide(0, np.zeros((1, 2), dtype=np.float32)).leaves_N.tolist() == [False]


def test_full_depth_keeps_even_the_certain() -> None:
    policy = full_depth(3, 1.0)
    assert policy.name == "full"
    assert policy.thresholds == (NEVER, NEVER)
    assert policy.first_exit(np.ones((2, 3))).tolist() == [2, 2]


def test_at_a_single_exit_every_example_stops() -> None:
    policy = full_depth(1, 1.0)
    assert policy.first_exit(np.array([[0.2], [0.9]])).tolist() == [0, 0]
    assert policy.decide(0, np.zeros((2, 3), dtype=np.float32)).leaves_N.all()


def test_an_empty_batch_is_decided() -> None:
    decision = full_depth(2, 1.0).decide(0, np.zeros((0, 3), dtype=np.float32))
    assert decision.leaves_N.shape == decision.prediction_N.shape == decision.confidence_N.shape == (0,)


@pytest.mark.parametrize(
    ("thresholds", "reachable"),
    [
        ((0.9, 0.9), (True, True, True)),
        ((1.0, 0.9), (False, True, True)),
        ((1.0, 1.0), (False, False, True)),
        ((0.05, 0.9), (True, False, False)),
        ((0.9, 0.0), (True, True, False)),
        ((0.1, 0.9), (True, True, True)),  # a confidence of exactly 1/C does not exceed it
    ],
)
def test_reachable_exits(thresholds: tuple[float, float], reachable: tuple[bool, bool, bool]) -> None:
    assert Policy("p", thresholds, (1.0, 1.0, 1.0)).reachable(10) == reachable


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("measure", ["probability", "entropy"])
def test_an_adjustment_comes_before_everything_else(combine: bool, measure: Measure) -> None:
    """A policy with an adjustment gives the decision of a policy without one on adjusted logits."""
    logits_NEC = np.random.default_rng(3).normal(size=(40, 3, 5)).astype(np.float32)
    adjustment = LogitAdjustment((0.4, 0.0, 1.1), (-0.3, -1.0, -2.0, -3.0, -4.0))
    plain = Policy("p", (0.5, 0.4), (0.5, 1.0, 2.0), combine, measure)
    adjusted = replace(plain, adjustment=adjustment)
    evidence, expected_evidence, changed = None, None, 0
    for k in range(3):
        decision = adjusted.decide(k, logits_NEC[:, k], evidence)
        expected = plain.decide(k, adjustment.apply(k, logits_NEC[:, k]), expected_evidence)
        for found, wanted in zip(decision[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(found, wanted)
        evidence, expected_evidence = decision.evidence_NC, expected.evidence_NC
        changed += int((decision.prediction_N != logits_NEC[:, k].argmax(axis=1)).sum())
    assert changed > 10
    assert adjusted.reading != plain.reading


def test_a_policy_without_adjustment_is_written_as_before() -> None:
    assert full_depth(2, 1.0).to_dict().keys() == {"name", "thresholds", "confidence_scale", "combine", "measure"}


@pytest.mark.parametrize(
    ("name", "thresholds", "scale"),
    [
        ("", (0.5,), (1.0, 1.0)),
        ("p", (float("nan"),), (1.0, 1.0)),
        ("p", (-0.1,), (1.0, 1.0)),
        ("p", (1.1,), (1.0, 1.0)),
        ("p", (0.5,), (1.0, 0.0)),
        ("p", (0.5,), (1.0, float("inf"))),
        ("p", (0.5,), (1.0, float("nan"))),
        ("p", (), ()),
    ],
)
def test_impossible_policies_are_refused(name: str, thresholds: tuple[float, ...], scale: tuple[float, ...]) -> None:
    with pytest.raises(RequestError):
        Policy(name, thresholds, scale)


def test_uniform_policy_and_scales() -> None:
    assert uniform_policy("s=0.5", 0.5, 4, 30.0) == Policy("s=0.5", (0.5, 0.5, 0.5), (30.0, 30.0, 30.0, 30.0))
    assert uniform_policy("s", 0.5, 2, [1.0, 2.0]).confidence_scale == (1.0, 2.0)
    with pytest.raises(RequestError, match="3 confidence scales given for 2 exits"):
        scale_per_exit((1.0, 1.0, 1.0), 2)


def test_entropy_measure_is_one_minus_entropy_over_its_largest_value() -> None:
    logits_NC = np.array([[2.0, 0.5, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [900.0, 0.0, 0.0, 0.0]])
    policy = Policy("branchy", (0.3,), (1.0, 1.0), measure="entropy")
    decision = policy.decide(0, logits_NC)
    for n, logits in enumerate(logits_NC.tolist()):
        powers = [math.exp(z - max(logits)) for z in logits]
        p = [power / sum(powers) for power in powers]
        entropy = -sum(q * math.log(q) for q in p if q > 0)
        assert decision.confidence_N[n] == pytest.approx(1 - entropy / math.log(4), abs=1e-12)
    assert decision.leaves_N.tolist() == [bool(c > 0.3) for c in decision.confidence_N]
    assert decision.confidence_N[1] == pytest.approx(0.0, abs=1e-12)
    assert decision.confidence_N[2] == 1.0
    certainty_N, prediction_N = certainty_and_prediction(logits_NC, 1.0)
    assert certainty_N.tolist() == decision.confidence_N.tolist()
    assert prediction_N.tolist() == decision.prediction_N.tolist()
    assert policy.reachable(4) == (True, True)


def test_unknown_measure_is_refused() -> None:
    with pytest.raises(RequestError, match="measure 'margin' is unknown"):
        Policy("p", (0.5,), (1.0, 1.0), measure="margin")  # type: ignore[arg-type]
