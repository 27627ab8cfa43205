"""What a run directory gives to somebody who wants answers from it: network, operating points, preprocessing."""

from dataclasses import dataclass

from elfnet.calibrate.family import Family
from elfnet.checkpoint.format import Checkpoint
from elfnet.checkpoint.of_run import load_run_checkpoint
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.data.preparation_from_recipe import evaluation_of
from elfnet.deploy.images.preprocess import CHANNELS, Preprocess
from elfnet.errors import RequestError
from elfnet.models.of_run import network_of_run
from elfnet.models.staged import StagedNetwork


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
