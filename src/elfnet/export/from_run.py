"""What a run directory gives to somebody who wants answers from it: network, operating points, preprocessing."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.data.build import load_splits
from elfnet.data.images.transforms import evaluation_of
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.errors import RequestError, WorkError
from elfnet.inference.backends.build import open_backend
from elfnet.inference.engine import Engine
from elfnet.inference.model import Model, exit_from_zero
from elfnet.inference.preprocess import CHANNELS, Preprocess
from elfnet.models.run_network import network_of_run
from elfnet.models.staged import StagedNetwork
from elfnet.run.checkpoint import Checkpoint, load_run_checkpoint
from elfnet.run.directory import RunDirectory


@dataclass(frozen=True, eq=False)
class RunParts:
    """The last checkpoint of a calibrated run, on the CPU, in evaluation mode.

    Attributes:
        signature: what the weights are for, in one line.
    """

    network: StagedNetwork
    checkpoint: Checkpoint
    signature: str
    family: Family
    preprocess: Preprocess
    class_names: tuple[str, ...]


def open_parts(run: RunDirectory, *, network: StagedNetwork | None = None) -> RunParts:
    """Read and check; a run without operating points of its last checkpoint is refused.

    Args:
        network: of a run that trained one that was handed in; it is copied.
    """
    recipe, info = run.recipe(), run.info()
    data = info["data"]
    class_names = tuple(data["class_names"])
    height, width, channels = data["image_shape"]
    modes = [mode for mode, number in CHANNELS.items() if number == channels]
    if not modes or height == width == 1:
        raise RequestError(
            f"the run in {run.root} reads {height} x {width} x {channels}, which is no grey or RGB image; "
            "bundles are for images"
        )
    checkpoint, model = load_run_checkpoint(run, "last", recipe, info)
    network = network_of_run(model, info, network, where=run.root)
    family = Family.open(run.policy_file, checkpoint_sha256=checkpoint.sha256)
    network.load_state_dict(dict(checkpoint.weights))
    evaluation = evaluation_of(recipe.data)
    preprocess = Preprocess(
        mode=modes[0],
        height=height,
        width=width,
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        crop_share=evaluation.image_size / evaluation.resize,
    )
    return RunParts(network.eval(), checkpoint, checkpoint.network, family, preprocess, class_names)


def model_of_run(
    run: RunDirectory,
    *,
    backend: str = "torch",
    threads: int | None = None,
    deepest_exit: int | None = None,
    abstain_below: float = 0.0,
) -> Model:
    """The last checkpoint with the run's operating points; arguments as of `elfnet.load`."""
    parts = open_parts(run)
    height, width, channels = parts.preprocess.shape
    computes = open_backend(
        backend,
        graphs=lambda: _graphs(parts),
        network=lambda: parts.network,
        threads=threads,
        image_shape=(channels, height, width),
    )
    engine = Engine(
        computes,
        parts.family,
        deepest_exit=exit_from_zero(deepest_exit, parts.family.exits),
        abstain_below=abstain_below,
    )
    return Model(engine, parts.preprocess, parts.class_names)


def _graphs(parts: RunParts) -> list[bytes]:
    from elfnet.export.onnx import export_stages

    height, width, channels = parts.preprocess.shape
    return export_stages(parts.network, (channels, height, width))


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
