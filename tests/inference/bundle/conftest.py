"""A small bundle whose graphs are any bytes: reading never looks inside them."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from older_bundles import graph_name, manifest_text, write_bundle

from elfnet.calibrate.line_search import fixed_points
from elfnet.calibrate.point_family import Family
from elfnet.evaluate.exit_table import ExitTable
from elfnet.inference.bundle.manifest import MANIFEST, WEIGHTS, Manifest

CHECKPOINT = "c" * 64
EXITS, CLASSES = 3, 4


@pytest.fixture(scope="session")
def table() -> ExitTable:
    rng = np.random.default_rng(0)
    return ExitTable(
        logits_NEC=rng.normal(0, 3, (40, EXITS, CLASSES)).astype(np.float32),
        labels_N=np.arange(40, dtype=np.int64) % CLASSES,
        cost_E=np.array([0.2, 0.6, 1.1]),
        head_cost_E=np.array([0.05, 0.05, 0.01]),
        plain_multiply_adds=100,
        class_counts_C=np.array([50, 30, 20, 10]),
        class_names=tuple("abcd"),
        split="calibration",
        checkpoint_sha256=CHECKPOINT,
        confidence_scale=1.0,
        many_above=35,
        few_below=15,
    )


@pytest.fixture(scope="session")
def family(table: ExitTable) -> Family:
    return fixed_points(table, [0.6, 0.8])


@pytest.fixture
def contents() -> dict[str, bytes]:
    graphs = {graph_name("float32", k + 1): bytes([k]) * (1000 + k) for k in range(EXITS)}
    return {WEIGHTS: b"weights" * 500, **graphs}


@pytest.fixture
def manifest_fields(family: Family, contents: dict[str, bytes]) -> dict[str, Any]:
    """What makes a valid manifest of `contents`; tests spoil one thing at a time."""
    return {
        "elfnet_version": "0.1.0",
        "class_names": list("abcd"),
        "preprocessing": {"mode": "L", "height": 8, "width": 8, "mean": [0.5], "std": [0.2]},
        "multiply_adds": {"stages": [10, 30, 59], "heads": [5, 5, 1], "plain": 100},
        "variants": {
            "float32": {"graphs": [graph_name("float32", k + 1) for k in range(EXITS)], "family": family.to_dict()}
        },
        "files": {
            name: {"sha256": sha256(content).hexdigest(), "bytes": len(content)} for name, content in contents.items()
        },
        "size_bytes": sum(map(len, contents.values())),
        "provenance": {
            "recipe": {"data": {"source": "digits"}},
            "network": "a network",
            "data_fingerprint": "d" * 64,
            "checkpoint_sha256": CHECKPOINT,
        },
    }


@pytest.fixture
def files(manifest_fields: dict[str, Any], contents: dict[str, bytes]) -> dict[str, bytes]:
    """All files of a valid bundle, by name."""
    import json

    manifest = Manifest.model_validate_json(json.dumps(manifest_fields))
    return {MANIFEST: manifest_text(manifest), **contents}


@pytest.fixture(params=["zip", "directory"])
def bundle_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[dict[str, bytes]], Path]:
    """Write files as a bundle in both forms."""

    def write(files: dict[str, bytes]) -> Path:
        write_bundle(tmp_path / "it.elfnet", files, as_directory=request.param == "directory")
        return tmp_path / "it.elfnet"

    return write
