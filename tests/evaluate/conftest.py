"""Small synthetic exit tables."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elfnet.evaluate.exit_table import ExitTable

TableFactory = Callable[..., ExitTable]


@pytest.fixture
def make_table() -> TableFactory:
    """A table whose later exits are better; any field can be replaced by keyword."""

    def make(examples: int = 300, exits: int = 4, classes: int = 6, *, seed: int = 0, **replaced: Any) -> ExitTable:
        rng = np.random.default_rng(seed)
        labels_N = rng.integers(classes, size=examples)
        logits_NEC = rng.normal(size=(examples, exits, classes)).astype(np.float32)
        logits_NEC[np.arange(examples), :, labels_N] += np.linspace(0.5, 2.5, exits, dtype=np.float32)
        fields: dict[str, Any] = {
            "logits_NEC": logits_NEC,
            "labels_N": labels_N,
            "cost_E": np.linspace(0.1, 1.2, exits),
            "plain_multiply_adds": 1_000_000,
            "class_counts_C": np.array([500, 101, 100, 20, 19, 2, *([50] * classes)][:classes]),
            "class_names": tuple(f"class {c}" for c in range(classes)),
            "split": "test",
            "checkpoint_sha256": "a" * 64,
            "confidence_scale": 1.0,
            "many_above": 100,
            "few_below": 20,
        }
        return ExitTable(**(fields | replaced))

    return make
