"""Where holes are: Cutout's square and the rectangles of random erasing."""

from collections import Counter

import numpy as np
import pytest

from elfnet.data.images.operations import Hole, cutout, random_erasing


@pytest.mark.parametrize("side", [1, 4, 5, 16])
def test_cutout_is_a_square_around_any_pixel_cut_by_the_border(side: int) -> None:
    height, width, draws = 16, 20, 20_000
    rng = np.random.default_rng(0)
    found = Counter(cutout(height, width, side=side, rng=rng) for _ in range(draws))
    expected: Counter[Hole] = Counter()
    for y in range(height):
        for x in range(width):
            rows = [row for row in range(y - side // 2, y - side // 2 + side) if 0 <= row < height]
            columns = [column for column in range(x - side // 2, x - side // 2 + side) if 0 <= column < width]
            expected[Hole(rows[0], columns[0], rows[-1] + 1, columns[-1] + 1)] += 1
    assert found.keys() == expected.keys()
    for hole, centres in expected.items():
        mean = draws * centres / (height * width)
        assert abs(found[hole] - mean) < 6 * mean**0.5


def test_random_erasing_keeps_to_its_probability_area_and_shape() -> None:
    height, width, draws = 40, 60, 4_000
    rng = np.random.default_rng(0)
    found = [random_erasing(height, width, probability=0.25, rng=rng) for _ in range(draws)]
    holes = [hole for hole in found if hole != Hole()]
    assert 0.22 < len(holes) / draws < 0.28
    down, across = (
        np.array([hole.bottom - hole.top for hole in holes]),
        np.array([hole.right - hole.left for hole in holes]),
    )
    assert all(hole.top >= 0 and hole.left >= 0 and hole.bottom <= height and hole.right <= width for hole in holes)
    share = down * across / (height * width)
    assert 0.018 < share.min() < 0.03
    assert 0.3 < share.max() < 0.345
    assert (down / across).min() == pytest.approx(0.3, rel=0.1)
    assert 2.5 < (down / across).max() < 3.7
    assert {0} <= {hole.top for hole in holes}
    assert {height} <= {hole.bottom for hole in holes}


def test_as_many_numbers_whatever_happens() -> None:
    after = set()
    for seed in range(30):
        rng, other = np.random.default_rng(seed), np.random.default_rng(seed)
        random_erasing(8, 8, probability=0.5, rng=rng)
        after.add(other.random(60).tolist().index(rng.random()))
    assert after == {41}
