"""A small synthetic calibration table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elfnet.evaluate.exit_table import ExitTable

TableFactory = Callable[..., ExitTable]


@pytest.fixture
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
