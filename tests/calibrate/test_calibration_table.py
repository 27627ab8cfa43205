"""Splits of the calibration table."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import split_table
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable

Draw = Callable[[int, int], ExitTable]


def _take(table: ExitTable, rows: NDArray[np.int64]) -> ExitTable:
    return replace(table, logits_NEC=table.logits_NEC[rows], labels_N=table.labels_N[rows])


def _rows(part: ExitTable, table: ExitTable) -> list[int]:
    """Where the examples of a part are in the table; every synthetic example is unique."""
    where = {row.tobytes(): i for i, row in enumerate(table.logits_NEC)}
    return [where[row.tobytes()] for row in part.logits_NEC]


def test_the_parts_make_up_the_table(population: ExitTable) -> None:
    fitting, certifying = split_table(population, 0.3, 0)
    first, second = _rows(fitting, population), _rows(certifying, population)
    assert sorted(first + second) == list(range(population.examples))
    assert first == sorted(first)
    for part, rows in ((fitting, first), (certifying, second)):
        np.testing.assert_array_equal(part.labels_N, population.labels_N[rows])
        assert (part.split, part.checkpoint_sha256) == ("calibration", "a" * 64)


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.77])
def test_every_class_gives_its_share(draw: Draw, fraction: float) -> None:
    table = draw(211, 0)
    size_C = np.bincount(table.labels_N, minlength=5)
    for seed in range(20):
        fitting, _ = split_table(table, fraction, seed)
        assert (np.abs(np.bincount(fitting.labels_N, minlength=5) - fraction * size_C) < 1).all()
        assert abs(fitting.examples - fraction * 211) < 1


def test_every_example_has_the_same_chance(population: ExitTable) -> None:
    """Also in classes of one example or three."""
    of_class = [np.flatnonzero(population.labels_N == label) for label in (0, 1)]
    table = _take(population, np.concatenate([of_class[0][:1], of_class[1][:3]]))
    counts = np.zeros(4)
    for seed in range(600):
        counts[_rows(split_table(table, 0.4, seed)[0], table)] += 1
    np.testing.assert_allclose(counts / 600, 0.4, atol=3 * np.sqrt(0.24 / 600))


def test_the_seed_decides(population: ExitTable) -> None:
    first, again, other = (split_table(population, 0.5, seed)[0].logits_NEC for seed in (4, 4, 5))
    assert np.array_equal(first, again)
    assert first.shape == other.shape
    assert not np.array_equal(first, other)


def test_it_can_be_stratified_by_something_else(population: ExitTable) -> None:
    table = _take(population, np.arange(100))
    strata_N = np.repeat([0, 1], [90, 10])
    for seed in range(10):
        rows = np.array(_rows(split_table(table, 0.5, seed, strata_N=strata_N)[0], table))
        assert (rows >= 90).sum() == 5


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_a_part_without_examples_is_refused(population: ExitTable, fraction: float) -> None:
    with pytest.raises(RequestError, match=r"leaves one part empty; give a share between 0 and 1"):
        split_table(population, fraction, 0)


def test_a_table_too_small_to_split_is_refused(draw: Draw) -> None:
    with pytest.raises(RequestError, match=r"with 1 examples cannot be split at fraction=0.5"):
        split_table(draw(1, 0), 0.5, 0)
