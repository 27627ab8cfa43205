"""Images of a run's own data, ready for an engine."""

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.data.from_recipe import load_splits
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.errors import WorkError

BATCH = 256


def split_images(run: RunDirectory, split: str, *, most: int = 2048, seed: int = 0) -> NDArray[np.float32]:
    """At most `most` images of a split, drawn at random, normalised as in evaluation; float32 (N, K, H, W)."""
    splits, info = load_splits(run.recipe().data), run.info()["data"]
    if splits.fingerprint != info["fingerprint"]:
        raise WorkError(f"the data is not what the run in {run.root} was trained on; restore it, or train again")
    images = {"train": splits.train, "calibration": splits.calibration, "test": splits.test}[split]
    chosen = np.sort(np.random.default_rng(seed).permutation(len(images))[:most])
    normalisation = Normalisation(tuple(info["mean"]), tuple(info["std"]))
    batches = evaluation_batches(
        run.recipe().data, images.take(chosen), normalisation, batch_size=BATCH, device=torch.device("cpu")
    )
    return np.concatenate([np.ascontiguousarray(batch.numpy()) for batch in batches])
