"""Class weights: golden numbers and naive formulas."""

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.losses.weighting import class_weights

CIFAR10_LT = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
CIFAR100_LT = [int(500 * 0.01 ** (i / 99)) for i in range(100)]


@pytest.mark.parametrize(
    ("counts", "first", "last"), [(CIFAR10_LT, 0.050611, 3.992724), (CIFAR100_LT, 0.044876, 4.378313)]
)
def test_golden_effective_number_weights(counts: list[int], first: float, last: float) -> None:
    weights_C = class_weights(counts, "effective", beta=0.9999, dtype=torch.float64)
    assert weights_C[0] == pytest.approx(first, abs=5e-7)
    assert weights_C[-1] == pytest.approx(last, abs=5e-7)
    assert weights_C.sum() == pytest.approx(len(counts), abs=1e-9)
    raw = [(1 - 0.9999) / (1 - 0.9999**n) for n in counts]
    assert weights_C.tolist() == pytest.approx([r * len(counts) / sum(raw) for r in raw])


@pytest.mark.parametrize(("kind", "power"), [("none", 0.0), ("inverse", 1.0), ("inverse_sqrt", 0.5)])
def test_powers_of_the_count(kind: str, power: float) -> None:
    raw = [n**-power for n in CIFAR10_LT]
    assert class_weights(CIFAR10_LT, kind).tolist() == pytest.approx([r * 10 / sum(raw) for r in raw])


def test_effective_number_lies_between_its_limits() -> None:
    """Beta 0 gives equal weights; beta near 1 gives weights by inverse frequency."""
    assert class_weights(CIFAR10_LT, "effective", beta=0.0).tolist() == [1.0] * 10
    near_one = class_weights(CIFAR10_LT, "effective", beta=1 - 1e-12)
    assert torch.allclose(near_one, class_weights(CIFAR10_LT, "inverse"), rtol=1e-6)


def test_one_class_weighs_one() -> None:
    assert class_weights([17], "effective").tolist() == pytest.approx([1.0])


@pytest.mark.parametrize("beta", [1.0, -0.1, 2.0])
def test_beta_out_of_range_is_refused(beta: float) -> None:
    with pytest.raises(RequestError, match=rf"criterion\.effective_beta={beta} must be in \[0, 1\)"):
        class_weights([2, 1], "effective", beta=beta)


def test_class_without_examples_is_refused() -> None:
    with pytest.raises(RequestError, match="class 2 has no training example"):
        class_weights([3, 2, 0, 0], "inverse")


def test_unknown_weighting_is_refused() -> None:
    with pytest.raises(RequestError, match=r"unknown criterion.reweight 'efective'; did you mean 'effective'\?"):
        class_weights([3, 2], "efective")
