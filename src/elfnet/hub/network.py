"""A torch network as two files: its weights, and the settings that build it."""

from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from elfnet import atomic
from elfnet.calibrate.point_family import Family
from elfnet.errors import WorkError
from elfnet.models.build import network_of
from elfnet.models.staged import StagedNetwork
from elfnet.pretrained.names import find_file
from elfnet.recipe.schema import ModelRecipe
from elfnet.run.checkpoint import load_run_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.run.json_file import Strict, first_error

WEIGHTS, SETTINGS = "network.safetensors", "network.json"


class NetworkSettings(Strict):
    """The content of `network.json`.

    Attributes:
        model: Settings of the network, as in a recipe.
        class_names: Names by class index.
        image_shape: Height, width and channels of the input.
        mean, std: Per channel, of pixels scaled to [0, 1].
        weights_sha256: Hash of the weights.
    """

    format_version: int = 1
    model: dict[str, object]
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    weights_sha256: str

    def build(self) -> StagedNetwork:
        """Build the network with new weights."""
        model = ModelRecipe.model_validate(self.model)
        return network_of(model, classes=len(self.class_names), image_channels=self.image_shape[2])


def write_network(run: RunDirectory, folder: Path) -> None:
    """Write weights and settings of a calibrated run's network into a folder."""
    recipe, info = run.recipe(), run.info()
    checkpoint, model = load_run_checkpoint(run, Family.open(run.policy_file).checkpoint, recipe, info)
    weights = {name: tensor.contiguous() for name, tensor in checkpoint.weights.items()}
    settings = NetworkSettings(
        model=model.model_dump(mode="json") | {"weights": ""},
        class_names=info.data.class_names,
        image_shape=info.data.image_shape,
        mean=info.data.mean,
        std=info.data.std,
        weights_sha256=tensors_sha256(weights),
    )
    atomic.write_with(folder / WEIGHTS, lambda temporary: save_file(weights, temporary))
    atomic.write_text(folder / SETTINGS, settings.model_dump_json(indent=2) + "\n")


def load_network(name: str | Path) -> tuple[StagedNetwork, NetworkSettings]:
    """Return a pretrained torch network and its settings, for further training or for other code.

    Args:
        name: A folder that `save_pretrained` wrote for a run, or `hub:user/name[@revision]`.

    Raises:
        WorkError: A file is missing or damaged, or the repository cannot be reached.
    """
    files = [find_file(name, file) for file in (SETTINGS, WEIGHTS)]
    for path in files:
        if not path.is_file():
            raise WorkError(f"there is no {path}; save_pretrained writes it for a run, not for an exported file")
    try:
        settings = NetworkSettings.model_validate_json(files[0].read_text())
        weights = load_file(files[1])
    except ValidationError as error:
        raise WorkError(f"{files[0]} is damaged ({first_error(error)}); save or download it again") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise WorkError(f"{files[1]} is damaged ({error}); save or download it again") from error
    if tensors_sha256(weights) != settings.weights_sha256:
        raise WorkError(f"{files[1]} was altered (its hash does not match); save or download it again")
    network = settings.build()
    network.load_state_dict(weights)
    return network.eval(), settings
