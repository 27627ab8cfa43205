"""Early exits that learn from the last, against a naive loop."""

import itertools
import math

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.losses.base import Labels, build_loss
from elfnet.losses.elf import Distillation, ELFLoss


def _softmax(values: list[float]) -> list[float]:
    powers = [math.exp(v) for v in values]
    return [p / sum(powers) for p in powers]


def _random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def test_adds_the_softened_divergence_to_each_early_exit() -> None:
    logits_EBC, loss_EB = _random(3, 4, 5), _random(3, 4, seed=2).abs()
    weight, temperature, scale = 0.4, 2.0, 3.0
    result_EB = Distillation(weight, temperature=temperature)(loss_EB, logits_EBC, scale=scale)
    for b in range(4):
        soft = [_softmax((logits_EBC[e, b] * scale / temperature).tolist()) for e in range(3)]
        for e in range(2):
            divergence = sum(t * math.log(t / s) for t, s in zip(soft[2], soft[e], strict=True))
            expected = float(loss_EB[e, b]) + weight * temperature**2 * divergence
            assert float(result_EB[e, b]) == pytest.approx(expected, abs=1e-4)
    assert torch.equal(result_EB[2], loss_EB[2])


def test_the_teacher_takes_no_gradient() -> None:
    logits_EBC = _random(3, 4, 5).requires_grad_()
    Distillation(1.0)(torch.zeros(3, 4), logits_EBC).sum().backward()
    assert logits_EBC.grad is not None
    assert float(logits_EBC.grad[-1].abs().max()) == 0
    assert float(logits_EBC.grad[:-1].abs().min()) > 0


def test_the_temperature_rises_until_the_teacher_is_no_surer_than_asked() -> None:
    """The temperature does not fall when the teacher becomes less confident again."""
    sure_EBC = 8 * _random(2, 16, 4)
    distillation = Distillation(1.0, confidence=0.5)
    temperatures = [1.0]
    for _ in range(100):
        distillation(torch.zeros(2, 16), sure_EBC)
        distillation.end_step(_alone)
        temperatures.append(float(distillation.temperature))
    rising = [b > a for a, b in itertools.pairwise(temperatures)]
    assert rising == sorted(rising, reverse=True)
    assert temperatures[1] == pytest.approx(1.05)

    def confidence(temperature: float) -> float:
        return float((sure_EBC[-1] / temperature).softmax(-1).amax(-1).mean())

    assert confidence(temperatures[-1]) <= 0.5 < confidence(temperatures[-1] / 1.05)
    distillation(torch.zeros(2, 16), sure_EBC / 8)
    distillation.end_step(_alone)
    assert float(distillation.temperature) == temperatures[-1]


def test_a_temperature_may_stay() -> None:
    distillation = Distillation(1.0, temperature=3.0, confidence=1.0)
    distillation(torch.zeros(2, 16), 50 * _random(2, 16, 4))
    distillation.end_step(_alone)
    assert float(distillation.temperature) == 3.0


def test_parts_of_a_batch_and_processes_have_the_temperature_of_the_whole() -> None:
    """The teacher is confident on one half of the batch only, so the halves alone would give different results."""
    sure_EBC, unsure_EBC = 20 * _random(2, 4, 4), 0.1 * _random(2, 12, 4)
    whole, parts = Distillation(1.0), Distillation(1.0)
    whole(torch.zeros(2, 16), torch.cat([sure_EBC, unsure_EBC], dim=1))
    for part_EBC in (sure_EBC, unsure_EBC):
        parts(torch.zeros(part_EBC.shape[:2]), part_EBC)
    parts.end_step(_alone)
    first, second = Distillation(1.0), Distillation(1.0)
    first(torch.zeros(2, 4), sure_EBC)
    second(torch.zeros(2, 12), unsure_EBC)
    total = first._teacher_confidence + second._teacher_confidence
    for distillation, all_reduce in ((whole, _alone), (first, lambda _: total), (second, lambda _: total)):
        distillation.end_step(all_reduce)
    assert {float(one.temperature) for one in (whole, parts, first, second)} == {1.0}
    alone = Distillation(1.0)
    alone(torch.zeros(2, 4), sure_EBC)
    alone.end_step(_alone)
    assert float(alone.temperature) > 1


def test_exit_weights_multiply_and_must_be_as_many_as_exits() -> None:
    base, labels = build_loss("ce", [1] * 5), Labels(torch.tensor([0, 1, 2, 3]))
    logits_EBC, visited_EB = torch.randn(3, 4, 5), torch.ones(3, 4, dtype=torch.bool)
    plain_EB = ELFLoss(base, exits=3).at_exits(logits_EBC, labels, visited_EB, torch.ones(5))
    weighted_EB = ELFLoss(base, exits=3, exit_weights=(1.0, 0.5, 2.0)).at_exits(
        logits_EBC, labels, visited_EB, torch.ones(5)
    )
    assert torch.allclose(weighted_EB, plain_EB * torch.tensor([[1.0], [0.5], [2.0]]))
    with pytest.raises(RequestError, match="2 numbers for 3 exits"):
        ELFLoss(base, exits=3, exit_weights=(1.0, 0.5))
