"""A known population to draw calibration tables from."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from elfnet.evaluate.exit_table import ExitTable

Draw = Callable[[int, int], ExitTable]


def synthetic_table(examples: int, *, seed: int) -> ExitTable:
    """Three exits of rising quality that share part of their errors, five classes in three frequency groups."""
    rng = np.random.default_rng(seed)
    labels_N = np.arange(examples) % 5
    logits_NEC = rng.normal(size=(examples, 1, 5)) + 0.7 * rng.normal(size=(examples, 3, 5))
    logits_NEC[np.arange(examples), :, labels_N] += np.linspace(1.2, 2.8, 3)
    # The rare class looks like a frequent one at the first exits: leaving early is paid for by its group.
    logits_NEC[labels_N == 4, :2, 0] += 1.6
    return ExitTable(
        logits_NEC=logits_NEC.astype(np.float32),
        labels_N=labels_N,
        cost_E=np.array([0.3, 0.6, 1.05]),
        plain_multiply_adds=1000,
        class_counts_C=np.array([500, 200, 60, 50, 5]),
        class_names=tuple("abcde"),
        split="calibration",
        checkpoint_sha256="a" * 64,
        confidence_scale=1.0,
        many_above=100,
        few_below=20,
    )


@pytest.fixture(scope="session")
def population() -> ExitTable:
    return synthetic_table(3000, seed=11)


@pytest.fixture(scope="session")
def draw(population: ExitTable) -> Draw:
    """(examples, seed) -> a table of so many examples, drawn freely from the population."""

    def of(examples: int, seed: int) -> ExitTable:
        rows = np.random.default_rng(seed).integers(population.examples, size=examples)
        return replace(population, logits_NEC=population.logits_NEC[rows], labels_N=population.labels_N[rows])

    return of
