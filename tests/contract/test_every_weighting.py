"""What every registered class weighting must do."""

import numpy as np
import pytest
import torch

from elfnet.errors import RequestError
from elfnet.losses.weighting import WEIGHTINGS, class_weights

PROFILES = {
    "long tail": [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50],
    "not in order": [3, 500, 1, 70, 70],
    "balanced": [40] * 6,
    "one each": [1, 1, 1],
    "one class": [9],
    "very long": [1_000_000, 1000, 1],
}


@pytest.fixture(params=WEIGHTINGS.names())
def weighting(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_paper_needs_these() -> None:
    assert WEIGHTINGS.names() == ["effective", "inverse", "inverse_sqrt", "none"]


@pytest.mark.parametrize("counts", PROFILES.values(), ids=PROFILES.keys())
def test_positive_summing_to_the_classes_and_never_less_for_the_rarer(weighting: str, counts: list[int]) -> None:
    weights_C = class_weights(counts, weighting, dtype=torch.float64)
    assert weights_C.dtype == torch.float64
    assert weights_C.shape == (len(counts),)
    assert (weights_C > 0).all()
    assert weights_C.sum() == pytest.approx(len(counts))
    from_rare_to_frequent = np.argsort(counts, kind="stable")
    assert (weights_C[from_rare_to_frequent].diff() <= 1e-12).all()


def test_equal_counts_weigh_one(weighting: str) -> None:
    assert class_weights([17] * 5, weighting).tolist() == pytest.approx([1.0] * 5)


def test_classes_of_equal_size_weigh_the_same(weighting: str) -> None:
    weights_C = class_weights([50, 7, 50, 7], weighting)
    assert weights_C[0] == weights_C[2]
    assert weights_C[1] == weights_C[3]


def test_a_class_without_examples_is_refused(weighting: str) -> None:
    with pytest.raises(RequestError, match="class 1 has no training example"):
        class_weights([5, 0], weighting)
