"""What a result needs to be believed: versions, hardware, seeds, data."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.models.cost import NetworkCost
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.train.machine import choose_machine
from elfnet.version import __version__

PACKAGES = ("torch", "numpy", "lightning-fabric", "scikit-learn", "safetensors", "pydantic")


def _package_versions() -> dict[str, str]:
    versions = {"elfnet": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    """The processor's name; Linux tells it in a file only."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe_environment() -> dict[str, Any]:
    """Versions and hardware; the command is kept without the directories of whoever ran it."""
    program, *arguments = sys.argv
    return {
        "versions": _package_versions(),
        "hardware": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
        "command": " ".join([Path(program).name, *arguments]),
    }


def run_info(recipe: Recipe, splits: Splits, normalisation: Normalisation, cost: NetworkCost) -> dict[str, Any]:
    images = len(splits.train)
    machine = choose_machine(
        device=recipe.train.device,
        precision=recipe.train.precision,
        compile=recipe.train.compile,
        channels_last=recipe.train.channels_last,
        threads=recipe.train.threads,
        work=float(images * total_epochs(recipe) * cost.to_exit[-1]),
        batch_shrinks=recipe.exits.left == "drop",
    )
    return {
        **describe_environment(),
        "machine": machine.to_dict(),
        "seeds": {
            "subset": recipe.data.subset_seed,
            "class_order": recipe.data.class_order_seed,
            "training": recipe.train.seed,
        },
        "data": {
            "fingerprint": splits.fingerprint,
            "class_names": list(splits.class_names),
            "class_counts": splits.class_counts_C.tolist(),
            "train": images,
            "calibration": len(splits.calibration),
            "test": len(splits.test),
            "image_shape": list(splits.train.example_shape),
            "mean": list(normalisation.mean_K),
            "std": list(normalisation.std_K),
        },
        "multiply_adds": {"plain": cost.plain, "stages": list(cost.stages), "heads": list(cost.heads)},
    }
