"""The weighted mean over the batch."""

import pytest
import torch

from elfnet.losses.weighting import weighted_batch_mean

GENERATOR = torch.Generator().manual_seed(0)
LOSS_B = torch.rand(6, generator=GENERATOR, dtype=torch.float64)
WEIGHT_B = torch.rand(6, generator=GENERATOR, dtype=torch.float64) + 0.1


def test_divides_by_the_sum_of_weights() -> None:
    expected = sum(float(w * x) for w, x in zip(WEIGHT_B, LOSS_B, strict=True)) / sum(WEIGHT_B.tolist())
    assert float(weighted_batch_mean(LOSS_B, WEIGHT_B)) == pytest.approx(expected, abs=1e-12)


def test_examples_without_loss_still_count_in_the_divisor() -> None:
    """Three hard examples must not get the weight of a full batch."""
    loss_B = torch.tensor([3.0, 0.0, 0.0, 0.0])
    assert float(weighted_batch_mean(loss_B, torch.ones(4))) == 0.75


def test_a_common_factor_of_the_weights_does_not_matter() -> None:
    whole = float(weighted_batch_mean(LOSS_B, WEIGHT_B))
    assert float(weighted_batch_mean(LOSS_B, WEIGHT_B * 17)) == pytest.approx(whole)


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_parts_with_the_divisor_of_the_whole_add_up(cut: int) -> None:
    divisor = WEIGHT_B.sum()
    parts = [
        weighted_batch_mean(loss_B, weight_B, divisor)
        for loss_B, weight_B in ((LOSS_B[:cut], WEIGHT_B[:cut]), (LOSS_B[cut:], WEIGHT_B[cut:]))
    ]
    assert float(parts[0] + parts[1]) == pytest.approx(float(weighted_batch_mean(LOSS_B, WEIGHT_B)), abs=1e-12)
