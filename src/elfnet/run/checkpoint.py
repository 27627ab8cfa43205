"""Checkpoints (one safetensors file each, with weights, optimizer state and a JSON header), and the network of a run.

A single file can be replaced atomically. The header has a format version, the signature of the network and a hash of
all tensors. A file that is truncated, altered or of another network is refused. Nothing is unpickled.

The network of a run is described by its recipe, or was passed as `network=` when the run was trained. The signature of
a passed network is kept in run.json. Only a network with the same signature fits the weights of the run.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.interrupts import deferred_interrupts
from elfnet.models.build import network_of, network_signature
from elfnet.models.staged import StagedNetwork, evaluation_mode
from elfnet.parsing import parse_json
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import stage_of_weights, stops_early, total_epochs
from elfnet.run.directory import FIRST_STAGE, RunDirectory
from elfnet.run.info import RunInfo

FORMAT_VERSION = 1
HEADER = "elfnet"
HEADER_KEYS = {"format", "network", "epochs_done", "progress", "sha256"}


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes of tensors, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def header_sha256(header: Mapping[str, Any]) -> str:
    """SHA-256 over all other entries of the header."""
    hashed = {key: value for key, value in header.items() if key != "header_sha256"}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `epochs_done` epochs.

    Attributes:
        network: signature of the network; compared on loading.
        weights: state dict to evaluate.
        optimiser: state of the optimizer by parameter name; empty in a checkpoint that is not for resuming.
        progress: JSON-compatible progress of the run, such as the best score so far.
        trained_weights: state dict to resume from, if `weights` are a moving average; else empty.
        exit_history: for each training example, epochs in a row with the first exit taken; only with pruning.
    """

    network: str
    epochs_done: int
    weights: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)
    trained_weights: Mapping[str, Tensor] = field(default_factory=dict)
    exit_history: Tensor | None = None

    @property
    def sha256(self) -> str:
        """Hash of the weights; exit tables and policies refer to a checkpoint by it."""
        return tensors_sha256(self.weights)


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint atomically: after a full disk or a kill the previous file is intact."""
    tensors = {f"weights.{k}": v for k, v in checkpoint.weights.items()}
    tensors |= {f"optimiser.{k}": v for k, v in checkpoint.optimiser.items()}
    tensors |= {f"trained_weights.{k}": v for k, v in checkpoint.trained_weights.items()}
    if checkpoint.exit_history is not None:
        tensors["exit_history"] = checkpoint.exit_history
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {
        "format": FORMAT_VERSION,
        "network": checkpoint.network,
        "epochs_done": checkpoint.epochs_done,
        "progress": dict(checkpoint.progress),
        "sha256": tensors_sha256(tensors),
    }
    header["header_sha256"] = header_sha256(header)

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata={HEADER: json.dumps(header)})
        except SafetensorError as error:
            # The library reports a full disk as its own error; name it like any other failed write.
            raise OSError(None, str(error)) from error

    atomic.write_with(path, write)


def load_checkpoint(path: Path, *, network: str | None = None, device: str = "cpu") -> Checkpoint:
    """Read and verify a checkpoint.

    Args:
        network: signature that the checkpoint must have; None: any.
        device: of the returned weights and optimizer state.

    Raises:
        WorkError: the file is missing, damaged, or of another network.
    """
    if not path.is_file():
        raise WorkError(f"no checkpoint at {path}; train first, or name another run")
    way_out = "restore it from a copy, or train again with --overwrite"
    try:
        with deferred_interrupts(), safe_open(path, framework="pt", device="cpu") as file:
            header = parse_json((file.metadata() or {}).get(HEADER, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, ValueError) as error:
        raise WorkError(f"checkpoint {path} is truncated or damaged ({error}); {way_out}") from error
    if not isinstance(header, dict) or "format" not in header:
        raise WorkError(f"{path} is not a checkpoint of elfnet; name a run directory that 'elfnet train' wrote")
    if header["format"] != FORMAT_VERSION:
        raise WorkError(
            f"checkpoint {path} has format version {header['format']}, this elfnet reads {FORMAT_VERSION}; "
            "use the version of elfnet that wrote it"
        )
    # Old files have no hash of the header; they are still read.
    if header.keys() - {"header_sha256"} != HEADER_KEYS:
        raise WorkError(f"checkpoint {path} is damaged (its header is not as written); {way_out}")
    expected = (tensors_sha256(tensors), header_sha256(header))
    if (header["sha256"], header.get("header_sha256", expected[1])) != expected:
        raise WorkError(f"checkpoint {path} was altered (its hash does not match); {way_out}")

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v.to(device) for k, v in tensors.items() if k.startswith(prefix)}

    checkpoint = Checkpoint(
        network=header["network"],
        epochs_done=header["epochs_done"],
        weights=part("weights."),
        optimiser=part("optimiser."),
        progress=header["progress"],
        trained_weights=part("trained_weights."),
        exit_history=tensors.get("exit_history"),
    )
    if network is not None:
        require_network(checkpoint, network, path)
    return checkpoint


def is_finished(recipe: Recipe, checkpoint: Checkpoint) -> bool:
    """Whether a run has all its epochs, or was ended by `train.patience`."""
    best_epoch = int(checkpoint.progress.get("best_epoch", -1))
    return checkpoint.epochs_done >= total_epochs(recipe) or stops_early(recipe, checkpoint.epochs_done, best_epoch)


def require_network(checkpoint: Checkpoint, network: str, path: Path) -> None:
    """Refuse a checkpoint of another network."""
    if checkpoint.network != network:
        raise WorkError(f"checkpoint {path} is for another network ({checkpoint.network}, not {network})")


def load_run_checkpoint(run: RunDirectory, which: str, recipe: Recipe, info: RunInfo) -> tuple[Checkpoint, ModelRecipe]:
    """Load a verified checkpoint of a run, and the model section of the recipe that describes its network.

    A second stage may have other heads than the first, so the network depends on the stage of the weights.

    Args:
        which: one of `CHECKPOINTS`.
        recipe, info: content of the run's recipe.toml and run.json.
    """
    if which == FIRST_STAGE and recipe.refit.method != "balanced":
        raise RequestError(
            f"the run in {run.root} has no second stage (refit.method=balanced), so it keeps no checkpoint "
            f"{FIRST_STAGE!r}; choose from: last, best"
        )
    path = run.checkpoint(which)
    checkpoint = load_checkpoint(path)
    # The recipe of a run that starts from another one has the network of that run, whose epochs are not its own.
    model = recipe.model if which == FIRST_STAGE else stage_of_weights(recipe, checkpoint.epochs_done).recipe.model
    require_network(checkpoint, signature_of_run(model, info), path)
    return checkpoint, model


GIVEN = "given network"
"""The beginning of the signature of a network that was passed as `network=`."""


@torch.no_grad()
def signature_of(network: StagedNetwork, image_shape: tuple[int, ...]) -> str:
    """One line that identifies the architecture of any network; checkpoints with another signature do not fit it.

    It depends on the names, shapes and dtypes of all tensors and on the shapes of the features of every stage, but not
    on values.

    Args:
        image_shape: (channels, height, width).

    Raises:
        RequestError: the network does not run on images of this shape, or does not return logits.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    with evaluation_mode(network):
        for shape in _feature_shapes(network, image_shape):
            digest.update(f"{shape}\n".encode())
    return f"{GIVEN}, {network.exits} exits, {network.classes} classes, {digest.hexdigest()[:16]}"


def _feature_shapes(network: StagedNetwork, image_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes of the output of every stage for one image of zeros."""
    features: Any = torch.zeros(1, *image_shape, device=next(network.parameters()).device)
    shapes = []
    for number, (stage, head) in enumerate(network.pairs()):
        try:
            features = stage(features)
            logits = head(features)
        except RuntimeError as error:
            size = " x ".join(map(str, image_shape))
            reason = str(error).strip().partition("\n")[0][:200]
            raise RequestError(
                f"network= does not run on the data's images of {size} (stage {number + 1}: {reason}); "
                "pass a network that was built with an example of that shape"
            ) from error
        if not isinstance(features, Tensor) or tuple(logits.shape) != (1, network.classes):
            raise RequestError(
                f"stage {number + 1} of network= must return one tensor, and its head must return logits "
                f"(B, {network.classes})"
            )
        shapes.append(tuple(features.shape))
    return shapes


def signature_of_run(model: ModelRecipe, info: RunInfo) -> str:
    """The signature of the network of a run, read from its recipe and run.json; the network is not built."""
    if info.network is not None:
        return info.network.signature
    return network_signature(model, classes=info.data.classes, image_channels=info.data.image_shape[-1])


def network_of_run(model: ModelRecipe, info: RunInfo, given: StagedNetwork | None, *, where: Path) -> StagedNetwork:
    """Return a network to load the weights of a run into.

    Args:
        info: the content of run.json.
        given: the network passed by the caller, which is copied; None to build the network of the recipe.
        where: the directory of the run, for messages.

    Raises:
        RequestError: `given` does not fit the run, or is None although no recipe describes the network.
    """
    if given is not None:
        require_fits(info, given, where=where)
        return copy.deepcopy(given)
    if info.network is None:
        return network_of(model, classes=info.data.classes, image_channels=info.data.image_shape[-1])
    raise RequestError(
        f"the run in {where} trained a network passed as network=, which no recipe describes; "
        "do this from Python with network= built in the same way, or use a bundle of the run"
    )


def require_fits(info: RunInfo, given: StagedNetwork, *, where: Path) -> None:
    """Check that the weights of a run fit a network passed by the caller.

    Raises:
        RequestError: they do not.
    """
    height, width, channels = info.data.image_shape
    require_same_signature(info, signature_of(given, (channels, height, width)), where=where)


def require_same_signature(info: RunInfo, found: str, *, where: Path) -> None:
    """Check that the run trained a network passed as `network=` with the signature `found`.

    Raises:
        RequestError: it did not.
    """
    if info.network is None:
        raise RequestError(f"the run in {where} has the network of its recipe; leave network= out")
    expected = info.network.signature
    if found != expected:
        raise RequestError(
            f"network= is another network than the run in {where} trained ({found}, not {expected}); "
            "build it in the same way: the same model and the same cuts"
        )
