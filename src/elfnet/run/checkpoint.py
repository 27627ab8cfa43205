"""Checkpoints: one safetensors file each, with weights, optimizer state and a JSON header.

A single file can be replaced atomically. The header has a format version, the signature of the network and a hash of
all tensors. A file that is truncated, altered or of another network is refused. Nothing is unpickled.
"""

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
from elfnet.errors import WorkError
from elfnet.interrupts import deferred_interrupts
from elfnet.parsing import parse_json
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import stage_of_weights, stops_early, total_epochs
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.run.network import signature_of_run

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

    A second stage may have other heads than the first, so the network depends on the number of epochs done.

    Args:
        which: `last` or `best`.
        recipe, info: content of the run's recipe.toml and run.json.
    """
    path = run.checkpoint(which)
    checkpoint = load_checkpoint(path)
    model = stage_of_weights(recipe, checkpoint.epochs_done).recipe.model
    require_network(checkpoint, signature_of_run(model, info), path)
    return checkpoint, model
