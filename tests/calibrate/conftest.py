"""Synthetic calibration tables: a small one with any field replaced, and a known population to draw tables from."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate import confidence_scale
from elfnet.evaluate.exit_table import ExitTable

TableFactory = Callable[..., ExitTable]
Draw = Callable[[int, int], ExitTable]


@pytest.fixture(scope="session")
def make_table() -> TableFactory:
    """Balanced, four exits of rising quality; any field can be replaced by keyword."""

    def make(examples: int = 600, *, seed: int = 0, **replaced: Any) -> ExitTable:
        rng = np.random.default_rng(seed)
        labels_N = np.arange(examples) % 6
        logits_NEC = rng.normal(size=(examples, 4, 6)).astype(np.float32)
        logits_NEC[np.arange(examples), :, labels_N] += np.linspace(0.5, 2.5, 4, dtype=np.float32)
        fields: dict[str, Any] = {
            "logits_NEC": logits_NEC,
            "labels_N": labels_N,
            "cost_E": np.array([0.1, 0.5, 0.8, 1.2]),
            "plain_multiply_adds": 1_000_000,
            "class_counts_C": np.array([500, 101, 100, 20, 19, 2]),
            "class_names": tuple("abcdef"),
            "split": "calibration",
            "checkpoint_sha256": "a" * 64,
            "confidence_scale": 2.0,
            "many_above": 100,
            "few_below": 20,
        }
        return ExitTable(**(fields | replaced))

    return make


@pytest.fixture
def only_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected accuracy is the accuracy on the table, so that a search can be compared with brute force."""
    monkeypatch.setattr(confidence_scale, "PRIOR_EXAMPLES", 0)


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
