"""Read what inference and export need from a run directory: network, operating points, preprocessing, images.

`model_of_run` returns a `Model` for a run that has not been exported, `times_of_run` the time of its stages.
"""

# Shapes: N images, K channels, H height, W width

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_splits
from elfnet.data.images.transforms import evaluation_of
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.errors import RequestError
from elfnet.inference.backends.build import open_backend
from elfnet.inference.engine import Engine
from elfnet.inference.model import DEFAULT_BACKEND, Model, exit_from_zero
from elfnet.inference.preprocess import CHANNELS, FEATURE_ROWS, Preprocess
from elfnet.inference.timing import measure_single_images
from elfnet.models.staged import StagedNetwork
from elfnet.run.checkpoint import Checkpoint, load_run_checkpoint, network_of_run
from elfnet.run.directory import RunDirectory

BATCH = 256


@dataclass(frozen=True, eq=False)
class RunParts:
    """The network of a calibrated run with all that is needed to run it.

    Attributes:
        network: The network with the weights of the checkpoint, on the CPU, in evaluation mode.
        checkpoint: The checkpoint that the operating points belong to.
        signature: Signature of the network that the weights belong to, in one line.
        family: The operating points.
        preprocess: The preprocessing of evaluation.
        class_names: Names by class index.
    """

    network: StagedNetwork
    checkpoint: Checkpoint
    signature: str
    family: Family
    preprocess: Preprocess
    class_names: tuple[str, ...]


def open_parts(run: RunDirectory, *, network: StagedNetwork | None = None) -> RunParts:
    """Read network, operating points and preprocessing of a run, and check that they belong together.

    Args:
        run: A calibrated run.
        network: The custom network, if the run trained one; it is copied.

    Raises:
        RequestError: The run reads neither grey nor RGB images nor feature rows.
        ElfnetError: The run has no operating points, or they are not of its checkpoint.
    """
    recipe, info = run.recipe(), run.info()
    height, width, _ = info.data.image_shape
    modes = _input_modes(run)
    family = Family.open(run.policy_file)
    checkpoint, model = load_run_checkpoint(run, family.checkpoint, recipe, info)
    family.require_checkpoint(checkpoint.sha256)
    network = network_of_run(model, info, network, where=run.root)
    network.load_state_dict(dict(checkpoint.weights))
    evaluation = evaluation_of(recipe.data)
    preprocess = Preprocess(
        mode=modes[0],
        height=height,
        width=width,
        mean=info.data.mean,
        std=info.data.std,
        crop_share=1.0 if modes == [FEATURE_ROWS] else evaluation.share,
        squash=evaluation.squash,
    )
    return RunParts(network.eval(), checkpoint, checkpoint.network, family, preprocess, info.data.class_names)


def _input_modes(run: RunDirectory) -> list[str]:
    """Kinds of input that fit the network: image modes of Pillow, or feature rows."""
    if run.recipe().data.source == "features":
        return [FEATURE_ROWS]
    height, width, channels = run.info().data.image_shape
    modes = [mode for mode, number in CHANNELS.items() if number == channels]
    if not modes:
        raise RequestError(
            f"the run in {run.root} reads {height} x {width} x {channels}, which is not a grey or RGB image; "
            "only runs on images and on feature rows can be exported"
        )
    return modes


def times_of_run(run: RunDirectory, *, backend: str = DEFAULT_BACKEND) -> MeasuredCost:
    """Measure the time of the stages of a run for one image at a time, on the backend that a bundle runs on.

    The run need not be calibrated.

    Raises:
        RequestError: The run does not read grey or RGB images, or it trained a network from Python.
    """
    _input_modes(run)
    info = run.info()
    height, width, channels = info.data.image_shape
    shape = (channels, height, width)
    _, model = load_run_checkpoint(run, "last", run.recipe(), info)
    network = network_of_run(model, info, None, where=run.root).eval()
    opened = open_backend(backend, graphs=lambda: _graphs(network, shape), network=lambda: network, image_shape=shape)
    # The plain backbone ends with the first expert, if there are experts.
    plain_exit = network.exits - network.experts
    return measure_single_images(opened, shape, name=backend, threads=None, plain_exit=plain_exit)


def model_of_run(
    run: RunDirectory,
    *,
    backend: str = "torch",
    threads: int | None = None,
    deepest_exit: int | None = None,
    abstain_below: float = 0.0,
) -> Model:
    """Return a model of a calibrated run; the arguments are those of `elfnet.load`."""
    parts = open_parts(run)
    height, width, channels = parts.preprocess.shape
    opened = open_backend(
        backend,
        graphs=lambda: _graphs(parts.network, (channels, height, width)),
        network=lambda: parts.network,
        threads=threads,
        image_shape=(channels, height, width),
    )
    engine = Engine(
        opened,
        parts.family,
        deepest_exit=exit_from_zero(deepest_exit, parts.family.exits),
        abstain_below=abstain_below,
    )
    return Model(engine, parts.preprocess, parts.class_names, backend=backend, threads=threads)


def _graphs(network: StagedNetwork, image_shape: tuple[int, int, int]) -> list[bytes]:
    from elfnet.export.onnx import export_stages

    return export_stages(network, image_shape)


def split_images(run: RunDirectory, split: str, *, most: int = 2048, seed: int = 0) -> NDArray[np.float32]:
    """Return at most `most` random images of a split, normalised as in evaluation, as float32 (N, K, H, W).

    Raises:
        WorkError: The data has changed since training.
    """
    splits, info = load_splits(run.recipe().data), run.info()
    info.require_same_data(splits.fingerprint, where=run.root)
    images = {"train": splits.train, "calibration": splits.calibration, "test": splits.test}[split]
    chosen = np.sort(np.random.default_rng(seed).permutation(len(images))[:most])
    normalisation = Normalisation(info.data.mean, info.data.std)
    batches = evaluation_batches(
        run.recipe().data, images.take(chosen), normalisation, batch_size=BATCH, device=torch.device("cpu")
    )
    return np.concatenate([np.ascontiguousarray(batch.numpy()) for batch in batches])
