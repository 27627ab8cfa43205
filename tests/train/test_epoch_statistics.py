"""What the log says of an epoch, against a naive loop."""

# Shapes: E exits, B batch, C classes

import math

import pytest
import torch
from torch import Tensor

from elfnet.train.epoch_statistics import EpochStatistics, increasing_loss

EXITS, CLASSES = 3, 4
IS_HEAD_C = torch.tensor([True, True, False, False])
Step = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _statistics(steps: int, scale: float = 1.0) -> EpochStatistics:
    return EpochStatistics(steps=steps, exits=EXITS, is_head_C=IS_HEAD_C, scale=scale, device=torch.device("cpu"))


def _steps(sizes: list[int], *, last_exit: int = EXITS) -> list[Step]:
    """Made-up steps with confident and unsure examples, right and wrong."""
    generator = torch.Generator().manual_seed(0)
    steps = []
    for size in sizes:
        logits_EBC = torch.randn(EXITS, size, CLASSES, generator=generator) * 4
        target_B = torch.randint(CLASSES, (size,), generator=generator)
        exit_B = torch.randint(last_exit, (size,), generator=generator)
        visited_EB = torch.arange(EXITS)[:, None] <= exit_B
        loss_EB = torch.rand(EXITS, size, generator=generator) * visited_EB
        weight_B = torch.rand(size, generator=generator) + 0.1
        steps.append((logits_EBC, target_B, visited_EB, loss_EB, weight_B))
    return steps


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_record_equals_a_naive_loop(scale: float) -> None:
    steps = _steps([40, 40, 7])
    statistics = _statistics(len(steps), scale)
    count, loss_sum = [0] * EXITS, [0.0] * EXITS
    weighted = weights = low_head = high_tail = 0.0
    for step in steps:
        statistics.add(*step)
        logits_EBC, target_B, visited_EB, loss_EB, weight_B = (part.double() for part in step)
        for b in range(len(target_B)):
            k = max(e for e in range(EXITS) if visited_EB[e, b])
            loss, weight, y = float(loss_EB[:, b].sum()), float(weight_B[b]), int(target_B[b])
            count[k] += 1
            loss_sum[k] += loss
            weighted += weight * loss
            weights += weight
            exponentials = [math.exp(scale * one) for one in logits_EBC[k, b].tolist()]
            confidence = exponentials[y] / sum(exponentials)
            low_head += weight * loss * (y < 2 and confidence <= 0.1)
            high_tail += weight * loss * (y >= 2 and confidence >= 0.9)
    record = statistics.record(0, learning_rate=0.1, weights="none")
    assert record.loss == pytest.approx(weighted / weights, rel=1e-5)
    assert record.exit_share == pytest.approx([n / 87 for n in count])
    assert record.loss_by_exit == pytest.approx([x / n for x, n in zip(loss_sum, count, strict=True)], rel=1e-5)
    assert low_head > 0
    assert high_tail > 0
    assert record.low_confidence_head_loss_share == pytest.approx(low_head / weighted, rel=1e-5)
    assert record.high_confidence_tail_loss_share == pytest.approx(high_tail / weighted, rel=1e-5)
    assert record.increasing_loss == increasing_loss(record.loss_by_exit)


def test_an_exit_that_nobody_takes_has_no_average() -> None:
    statistics = _statistics(1)
    statistics.add(*_steps([20], last_exit=2)[0])
    record = statistics.record(0, learning_rate=0.1, weights="none")
    assert record.loss_by_exit[2] is None
    assert record.exit_share[2] == 0
    assert record.increasing_loss == "undefined"


def test_no_loss_at_all_has_no_shares() -> None:
    logits_EBC, target_B, visited_EB, loss_EB, weight_B = _steps([5])[0]
    statistics = _statistics(1)
    statistics.add(logits_EBC, target_B, visited_EB, torch.zeros_like(loss_EB), weight_B)
    record = statistics.record(0, learning_rate=0.1, weights="none")
    assert record.loss == 0
    assert record.low_confidence_head_loss_share is None
    assert record.high_confidence_tail_loss_share is None


@pytest.mark.parametrize(
    ("loss_by_exit", "verdict"),
    [
        ([0.1, 0.2, 0.3], "holds"),
        ([0.1, 0.3, 0.2], "does not hold"),
        ([0.1, 0.1, 0.2], "does not hold"),
        ([0.1, None, 0.3], "undefined"),
        ([None, None, 0.3], "undefined"),
        ([0.1, 0.2, None], "undefined"),
        ([0.3], "undefined"),
    ],
)
def test_increasing_loss(loss_by_exit: list[float | None], verdict: str) -> None:
    assert increasing_loss(loss_by_exit) == verdict


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_first_loss_that_is_not_finite_is_found(bad: float) -> None:
    steps = _steps([6] * 6)
    statistics = _statistics(len(steps))
    for number, (logits_EBC, target_B, visited_EB, loss_EB, weight_B) in enumerate(steps):
        if number == 4:
            loss_EB[1, 3] = loss_EB[2, 0] = bad
        if number == 5:
            loss_EB[0, 0] = bad
        statistics.add(logits_EBC, target_B, visited_EB, loss_EB, weight_B)
        if number == 1:
            assert statistics.first_not_finite() is None
    assert statistics.first_not_finite() == (4, 1)


def test_looking_twice_does_not_lose_what_came_in_between() -> None:
    steps = _steps([3] * 3)
    statistics = _statistics(3)
    for number, (logits_EBC, target_B, visited_EB, loss_EB, weight_B) in enumerate(steps):
        loss_EB[0, 0] = math.nan if number == 2 else 1.0
        statistics.add(logits_EBC, target_B, visited_EB, loss_EB, weight_B)
        assert statistics.first_not_finite() == ((2, 0) if number == 2 else None)
