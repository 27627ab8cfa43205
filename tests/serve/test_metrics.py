"""Prometheus metrics, and recent predictions compared with calibration."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from elfnet.calibrate.point_family import Family
from elfnet.inference.engine import Answers
from elfnet.inference.model import Model
from elfnet.serve.metrics import RecentAnswers, stability_index


def answers(exits: list[int], confidence: float = 0.5, cost: float = 0.7) -> Answers:
    n = len(exits)
    return Answers(
        np.zeros(n, dtype=np.int64),
        np.full(n, confidence),
        np.array(exits, dtype=np.int64),
        np.full(n, cost),
        np.zeros((n, 10), dtype=np.float32),
    )


def test_without_images_there_are_no_statistics(family: Family) -> None:
    stats = RecentAnswers(family).stats()
    assert stats.images == 0
    assert (stats.exit_share, stats.mean_cost, stats.exit_drift) == (None, None, None)


def test_expected_values_are_weighted_by_the_points_used(family: Family) -> None:
    recent = RecentAnswers(family)
    recent.add(["full"] * 30, answers([2] * 30, confidence=0.9, cost=1.0))
    recent.add(["s=0.3"] * 10, answers([0] * 10, confidence=0.5, cost=0.2))
    stats = recent.stats()
    full, cheap = family.point("full").expected, family.point("s=0.3").expected
    assert stats.exit_share == (0.25, 0.0, 0.75)
    assert stats.mean_cost == pytest.approx(0.8)
    assert stats.mean_confidence == pytest.approx(0.8)
    assert stats.expected_cost == pytest.approx(0.75 * full.mean_cost + 0.25 * cheap.mean_cost)
    wanted = [0.75 * a + 0.25 * b for a, b in zip(full.exit_share, cheap.exit_share, strict=True)]
    assert stats.expected_share == pytest.approx(wanted)
    assert stats.exit_drift is None  # 40 images are too few


def test_only_traffic_unlike_calibration_has_drift(family: Family) -> None:
    expected = family.point("s=0.5").expected
    counts = [round(share * 500) for share in expected.exit_share]
    alike, other = RecentAnswers(family), RecentAnswers(family)
    alike.add(
        ["s=0.5"] * sum(counts),
        answers([k for k, n in enumerate(counts) for _ in range(n)], confidence=expected.accuracy),
    )
    other.add(["s=0.5"] * 500, answers([2] * 500, confidence=expected.accuracy - 0.2))
    drift, much = alike.stats(), other.stats()
    assert drift.exit_drift == pytest.approx(0.0, abs=1e-9)
    assert drift.confidence_drift == pytest.approx(0.0, abs=1e-9)
    assert much.exit_drift is not None
    assert much.exit_drift > 0.25
    assert much.confidence_drift == pytest.approx(-0.2)


def test_stability_index_equals_its_definition() -> None:
    p, q = (30.5 / 101, 70.5 / 101), (50.5 / 101, 50.5 / 101)
    by_hand = sum((a - b) * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert stability_index(np.array([30, 70]), np.array([0.5, 0.5]), 100) == pytest.approx(by_hand)


def test_only_the_last_images_count(family: Family) -> None:
    recent = RecentAnswers(family, window=10)
    recent.add(["full"] * 10, answers([0] * 10))
    recent.add(["full"] * 8, answers([2] * 8))
    assert recent.stats().exit_share == (0.2, 0.0, 0.8)


def metric(client: TestClient, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(value)


def test_metrics_count_requests_images_and_exits(
    client: TestClient, model: Model, digit_files: list[bytes], as_json: Callable[..., dict[str, Any]]
) -> None:
    answers = client.post("/v1/predict", json=as_json(digit_files[:20], operating_point="s=0.5")).json()["answers"]
    client.post("/v1/predict", content=b"x")
    client.get("/v1/model")
    client.get("/path/from/a/client")
    assert metric(client, 'elfnet_requests_total{route="/v1/predict",status="200"}') == 1
    assert metric(client, 'elfnet_requests_total{route="/v1/predict",status="415"}') == 1
    assert metric(client, 'elfnet_requests_total{route="other",status="404"}') == 1
    assert "from/a/client" not in client.get("/metrics").text
    assert metric(client, 'elfnet_images_total{operating_point="s=0.5"}') == 20
    for k in (1, 2, 3):
        seen = sum(answer["exit"] == k for answer in answers)
        assert metric(client, f'elfnet_exit_images_total{{exit="{k}"}}') == seen
    cost = sum(answer["cost"] for answer in answers)
    assert metric(client, "elfnet_cost_total") == pytest.approx(cost)
    assert metric(client, "elfnet_mean_cost") == pytest.approx(cost / 20)
    expected = model.operating_points["s=0.5"].expected.mean_cost
    assert metric(client, "elfnet_mean_cost_expected") == pytest.approx(expected)
    assert metric(client, "elfnet_exit_drift") != metric(client, "elfnet_exit_drift")  # NaN: too few
    assert metric(client, "elfnet_queue_images") == metric(client, "elfnet_requests_held") == 0
    assert metric(client, "elfnet_held_bytes") == metric(client, "elfnet_held_pixels") == 0
    for _ in range(5):
        client.post("/v1/predict", json=as_json(digit_files[:20], operating_point="s=0.5"))
    assert metric(client, "elfnet_exit_drift") >= 0
    traffic = client.get("/v1/traffic").json()
    assert (traffic["requests"], traffic["refused"], traffic["recent"]["images"]) == (7, 0, 120)
    assert traffic["p95_ms"] >= traffic["p50_ms"] > 0
