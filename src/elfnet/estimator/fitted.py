"""What `ELFClassifier` learns: a network with its operating points, from a training run in a temporary directory.

`train` writes the arrays to files, trains a recipe on them and calibrates it. The run directory is removed afterwards;
what remains is a `FittedNetwork`, which holds plain data and a torch module, so that pickle can copy it.
"""

# Shapes: N examples, B batch, C classes, K channels (features of a table), H height, W width

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.calibrate.fit_points import fixed_family
from elfnet.calibrate.point_family import Family
from elfnet.calibrate.run import calibrate_run
from elfnet.data.long_tail import take_from_each_class
from elfnet.evaluate.run import evaluate_run
from elfnet.export.network import CHECKED, FittedNetwork
from elfnet.inference.bundle.manifest import Provenance
from elfnet.inference.preprocess import FEATURE_ROWS, Preprocess
from elfnet.recipe.load import load_recipe
from elfnet.recipe.roles import without_directories
from elfnet.run.checkpoint import load_run_checkpoint, network_of_run
from elfnet.run.directory import RunDirectory
from elfnet.train.logging import Silent
from elfnet.train.run import train_recipe

MIN_CALIBRATION = 20
"""Fewer held-out examples say nothing about thresholds; then none are held out."""
_IN_MEMORY = Path("/dev/shm")
_SPARE_BYTES = 512 * 2**20


def train(
    examples: NDArray[Any],
    labels_N: NDArray[np.int64],
    *,
    method: str,
    settings: Mapping[str, Any],
    calibration: float,
    seed: int,
    verbose: bool,
) -> FittedNetwork:
    """Train, calibrate and return a network.

    Args:
        examples: Rows, float32 (N, K), or images, uint8 (N, H, W, K).
        labels_N: Class of each example, from 0.
        method: Name of a shipped method, such as `joint-quick`.
        settings: Overrides of the recipe by dotted name.
        calibration: Share of each class that is held out for calibration; 0 for none.
        seed: Of the held-out examples and of training.
        verbose: Show the progress on standard error.
    """
    held_out = held_out_rows(labels_N, calibration, seed=seed)
    kept = np.setdiff1d(np.arange(len(labels_N)), held_out)
    chosen = held_out if len(held_out) else kept
    source = "features" if examples.ndim == 2 else "arrays"
    with TemporaryDirectory(prefix="elfnet-", dir=_folder_in_memory(examples.nbytes)) as folder:
        files = {name: Path(folder) / f"{name}.npz" for name in ("train", "calibration")}
        np.savez(files["train"], X=examples[kept], y=labels_N[kept])
        np.savez(files["calibration"], X=examples[chosen], y=labels_N[chosen])
        places = {
            "data.train": str(files["train"]),
            "data.calibration": str(files["calibration"]),
            # The trainer wants a test split. It is not used: whoever fits an estimator scores it on data of their own.
            "data.test": str(files["calibration"]),
            "data.subset_seed": seed,
            "train.seed": seed,
            **settings,
        }
        recipe = load_recipe(f"{source}/{method}", places)
        # The trainer seeds torch and sets its number of threads; both belong to the caller here.
        threads = torch.get_num_threads()
        with torch.random.fork_rng(devices=[]):
            try:
                run = train_recipe(recipe, Path(folder) / "run", observer=None if verbose else Silent())
                family = calibrate_run(run) if len(held_out) else fixed_family(evaluate_run(run, "train"), run.recipe())
                return _of_run(run, family, source, examples[chosen[:CHECKED]])
            finally:
                torch.set_num_threads(threads)


def held_out_rows(labels_N: NDArray[np.int64], share: float, *, seed: int) -> NDArray[np.int64]:
    """Sorted positions of the calibration examples: a share of each class, of which two examples stay for training.

    Returns:
        No position if there would be fewer than `MIN_CALIBRATION`, or of one class only.
    """
    total_C = np.bincount(labels_N)
    take_C = np.minimum(np.floor(total_C * share + 0.5).astype(np.int64), np.maximum(total_C - 2, 0))
    if take_C.sum() < MIN_CALIBRATION or np.count_nonzero(take_C) < 2:
        return np.zeros(0, dtype=np.int64)
    return take_from_each_class(labels_N, skip_C=np.zeros_like(take_C), take_C=take_C, subset_seed=seed)


def _folder_in_memory(bytes_needed: int) -> Path | None:
    """A folder in memory if the system has one with room; None for the default.

    A run is flushed to the disk after every epoch, which takes longer than an epoch on a small table.
    """
    try:
        fits = shutil.disk_usage(_IN_MEMORY).free > 4 * bytes_needed + _SPARE_BYTES
    except OSError:
        return None
    return _IN_MEMORY if fits else None


def _of_run(run: RunDirectory, family: Family, source: str, sample: NDArray[Any]) -> FittedNetwork:
    recipe, info = run.recipe(), run.info()
    checkpoint, model = load_run_checkpoint(run, family.checkpoint, recipe, info)
    network = network_of_run(model, info, None, where=run.root)
    network.load_state_dict(dict(checkpoint.weights))
    height, width, channels = info.data.image_shape
    modes = {("arrays", 1): "L", ("arrays", 3): "RGB"}
    preprocess = Preprocess(
        mode=modes.get((source, channels), FEATURE_ROWS),
        height=height,
        width=width,
        mean=info.data.mean,
        std=info.data.std,
    )
    provenance = Provenance(
        recipe=without_directories(recipe.model_dump(mode="json")),
        network=checkpoint.network,
        data_fingerprint=info.data.fingerprint,
        checkpoint_sha256=checkpoint.sha256,
    )
    return FittedNetwork(network.eval(), family, preprocess, provenance, sample)
