"""The embedded digits, and their enlargement against a naive loop."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from elfnet.data.sources.digits import digits, enlarge
from elfnet.data.types import SourceRequest


def test_digits_are_the_real_ones() -> None:
    source = digits(SourceRequest())
    assert source.train.images_NHWC.shape == (1797, 32, 32, 1)
    assert source.train.labels_N[:10].tolist() == list(range(10))
    assert source.test is None
    assert not source.horizontal_flip
    assert (source.train.images_NHWC.min(), source.train.images_NHWC.max()) == (0, 255)


def test_the_enlarged_digit_averages_back_to_the_small_one() -> None:
    large = digits(SourceRequest()).train.images_NHWC[..., 0].reshape(-1, 8, 4, 8, 4).mean((2, 4))
    small = np.asarray(load_digits().images) * 255 / 16
    assert np.corrcoef(large.ravel(), small.ravel())[0, 1] > 0.97


def test_enlargement_equals_a_naive_bilinear_loop() -> None:
    small = np.random.default_rng(0).uniform(0, 255, (2, 8, 8))
    large = enlarge(small, side=32)
    for row, column in [(0, 0), (1, 2), (5, 30), (13, 17), (31, 31)]:
        y, x = (min(max((place + 0.5) / 4 - 0.5, 0), 7) for place in (row, column))
        top, left = min(int(y), 6), min(int(x), 6)
        dy, dx = y - top, x - left
        corner = small[:, top : top + 2, left : left + 2]
        upper = corner[:, 0, 0] * (1 - dx) + corner[:, 0, 1] * dx
        lower = corner[:, 1, 0] * (1 - dx) + corner[:, 1, 1] * dx
        assert large[:, row, column].tolist() == np.rint(upper * (1 - dy) + lower * dy).tolist()


@pytest.mark.parametrize("value", [0.0, 100.0, 255.0])
def test_a_flat_image_stays_flat(value: float) -> None:
    assert (enlarge(np.full((1, 8, 8), value), side=32) == value).all()
