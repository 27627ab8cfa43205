"""Figures of the last answers against calibration."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from elfnet.calibrate.family import Family
from elfnet.deploy.engine import Answers
from elfnet.deploy.model import Model
from elfnet.serve.metrics import Recent, stability_index


def answers(exits: list[int], confidence: float = 0.5, cost: float = 0.7) -> Answers:
    n = len(exits)
    return Answers(
        np.zeros(n, dtype=np.int64),
        np.full(n, confidence),
        np.array(exits, dtype=np.int64),
        np.full(n, cost),
        np.zeros((n, 10), dtype=np.float32),
    )


def test_nothing_seen_is_nothing_said(family: Family) -> None:
    figures = Recent(family).figures()
    assert figures.images == 0
    assert (figures.exit_share, figures.mean_cost, figures.exit_drift) == (None, None, None)


def test_expectations_are_mixed_as_the_answers_were(family: Family) -> None:
    recent = Recent(family)
    recent.add("full", answers([2] * 30, confidence=0.9, cost=1.0))
    recent.add("s=0.3", answers([0] * 10, confidence=0.5, cost=0.2))
    figures = recent.figures()
    full, cheap = family.point("full").expected, family.point("s=0.3").expected
    assert figures.exit_share == (0.25, 0.0, 0.75)
    assert figures.mean_cost == pytest.approx(0.8)
    assert figures.mean_confidence == pytest.approx(0.8)
    assert figures.expected_cost == pytest.approx(0.75 * full.mean_cost + 0.25 * cheap.mean_cost)
    wanted = [0.75 * a + 0.25 * b for a, b in zip(full.exit_share, cheap.exit_share, strict=True)]
    assert figures.expected_share == pytest.approx(wanted)
    assert figures.exit_drift is None  # 40 answers are too few


def test_traffic_like_calibration_has_no_drift_and_other_traffic_has(family: Family) -> None:
    expected = family.point("s=0.5").expected
    counts = [round(share * 500) for share in expected.exit_share]
    alike, other = Recent(family), Recent(family)
    alike.add("s=0.5", answers([k for k, n in enumerate(counts) for _ in range(n)], confidence=expected.accuracy))
    other.add("s=0.5", answers([2] * 500, confidence=expected.accuracy - 0.2))
    drift, much = alike.figures(), other.figures()
    assert drift.exit_drift == pytest.approx(0.0, abs=1e-9)
    assert drift.confidence_drift == pytest.approx(0.0, abs=1e-9)
    assert much.exit_drift is not None
    assert much.exit_drift > 0.25
    assert much.confidence_drift == pytest.approx(-0.2)


def test_the_index_is_the_textbook_sum() -> None:
    p, q = (30.5 / 101, 70.5 / 101), (50.5 / 101, 50.5 / 101)
    by_hand = sum((a - b) * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert stability_index(np.array([30, 70]), np.array([0.5, 0.5]), 100) == pytest.approx(by_hand)


def test_only_the_last_answers_count(family: Family) -> None:
    recent = Recent(family, window=10)
    recent.add("full", answers([0] * 10))
    recent.add("full", answers([2] * 8))
    assert recent.figures().exit_share == (0.2, 0.0, 0.8)


def figure(client: TestClient, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(value)


def test_metrics_count_what_happened(
    client: TestClient, model: Model, digit_files: list[bytes], as_json: Callable[..., dict[str, Any]]
) -> None:
    answers = client.post("/v1/predict", json=as_json(digit_files[:20], operating_point="s=0.5")).json()["answers"]
    client.post("/v1/predict", content=b"x")
    client.get("/v1/model")
    client.get("/someone/wrote/this")
    assert figure(client, 'elfnet_requests_total{route="/v1/predict",status="200"}') == 1
    assert figure(client, 'elfnet_requests_total{route="/v1/predict",status="415"}') == 1
    assert figure(client, 'elfnet_requests_total{route="other",status="404"}') == 1
    assert "someone" not in client.get("/metrics").text
    assert figure(client, 'elfnet_images_total{operating_point="s=0.5"}') == 20
    for k in (1, 2, 3):
        seen = sum(answer["exit"] == k for answer in answers)
        assert figure(client, f'elfnet_exit_images_total{{exit="{k}"}}') == seen
    cost = sum(answer["cost"] for answer in answers)
    assert figure(client, "elfnet_cost_total") == pytest.approx(cost)
    assert figure(client, "elfnet_mean_cost") == pytest.approx(cost / 20)
    expected = model.operating_points["s=0.5"].expected.mean_cost
    assert figure(client, "elfnet_mean_cost_expected") == pytest.approx(expected)
    assert figure(client, "elfnet_exit_drift") != figure(client, "elfnet_exit_drift")  # NaN: too few
    assert figure(client, "elfnet_queue_images") == figure(client, "elfnet_requests_held") == 0
    assert figure(client, "elfnet_held_bytes") == 0
    for _ in range(5):
        client.post("/v1/predict", json=as_json(digit_files[:20], operating_point="s=0.5"))
    assert figure(client, "elfnet_exit_drift") >= 0
    traffic = client.get("/v1/traffic").json()
    assert (traffic["requests"], traffic["refused"], traffic["recent"]["images"]) == (7, 0, 120)
    assert traffic["p95_ms"] >= traffic["p50_ms"] > 0
