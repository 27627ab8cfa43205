"""Export a network that has no run directory: calibrate it, check it against torch, and write one ONNX file."""

# Shapes: N examples, E exits, C classes, K channels (features of a table), H height, W width

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from elfnet import atomic
from elfnet.calibrate.family_request import FamilyRequest
from elfnet.calibrate.fit_points import fit_family
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.run import logits_of
from elfnet.export.file_content import FileContent, package_versions
from elfnet.export.onnx import export_stages
from elfnet.export.parity import compare, engine_points, require_parity
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.manifest import Measured, Parity, Provenance
from elfnet.inference.bundle.one_file import FileVariant, OneFile, verified
from elfnet.inference.engine import all_exit_logits
from elfnet.inference.one_file_engine import OneFileEngine
from elfnet.inference.preprocess import FEATURE_ROWS, Preprocess
from elfnet.models.flops import count_cost
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import ExitsRecipe
from elfnet.run.checkpoint import tensors_sha256

BATCH = 256
CHECKED = 512
"""Examples that an exported file is compared with torch on."""
MANY_ABOVE, FEW_BELOW = 100, 20
"""Boundaries of the groups many, medium and few, as in recipes."""


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained network with everything that prediction and export need.

    Attributes:
        network: In evaluation mode, on the CPU.
        family: The operating points.
        preprocess: Turns rows or images into the input of the network.
        provenance: Origin of the network, for an exported file.
        sample: Some calibration examples as they were given, to check an exported file on.
    """

    network: StagedNetwork
    family: Family
    preprocess: Preprocess
    provenance: Provenance
    sample: NDArray[Any]


def export_network(
    network: StagedNetwork,
    images: NDArray[np.uint8],
    labels_N: ArrayLike,
    out: str | Path,
    *,
    class_names: Sequence[str],
    class_counts: Sequence[int],
    mean: Sequence[float],
    std: Sequence[float],
) -> Family:
    """Calibrate a network that was trained in a loop of your own, and export it as one ONNX file.

    Args:
        network: The trained network, such as `attach_exits` returns. It is put into evaluation mode.
        images: Calibration images that were not trained on, uint8 (N, H, W, K) in the size that the network reads.
        labels_N: Class of each image, from 0: an array, a tensor or a list.
        out: The file to write; an existing file is replaced.
        class_names: Names by class index.
        class_counts: Training examples per class.
        mean: Per channel, of pixels scaled to [0, 1], as in training.
        std: Per channel, likewise.

    Returns:
        The operating points, which are also in the file.

    Raises:
        RequestError: Arrays do not fit together, or the calibration images are of one class.
        WorkError: The exported graph differs from torch.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from torch import nn
        >>> from elfnet import attach_exits, export_network
        >>> layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)]
        >>> network = attach_exits(nn.Sequential(*layers), example=torch.rand(2, 1, 9, 9), exits=2, head="mean")
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 9, 9, 1), dtype=np.uint8)
        >>> labels = np.arange(40) % 2
        >>> about = {"class_names": ["a", "b"], "class_counts": [20, 20], "mean": [0.5], "std": [0.5]}
        >>> export_network(network, images, labels, "own.onnx", **about).points[0].name
        'full'
    """
    labels_N = np.asarray(labels_N, dtype=np.int64)
    _check_arrays(network, images, labels_N, class_names, class_counts)
    height, width, channels = images.shape[1:]
    if not len(mean) == len(std) == channels:
        raise RequestError(
            f"images have {channels} channel{'s' if channels > 1 else ''}, mean has {len(mean)} numbers and std has "
            f"{len(std)}; give one of each per channel"
        )
    preprocess = Preprocess(
        mode="L" if channels == 1 else "RGB", height=height, width=width, mean=tuple(mean), std=tuple(std)
    )
    weights_sha256 = tensors_sha256(network.state_dict())
    parts = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
    logits_NEC = logits_of(network, (torch.from_numpy(preprocess.normalise(part)) for part in parts))
    cost = count_cost(network, (channels, height, width))
    table = ExitTable(
        logits_NEC=logits_NEC,
        labels_N=labels_N,
        cost_E=np.array(cost.relative),
        head_cost_E=np.array(cost.heads) / cost.plain,
        plain_multiply_adds=cost.plain,
        class_counts_C=np.asarray(class_counts, dtype=np.int64),
        class_names=tuple(class_names),
        split="calibration",
        checkpoint_sha256=weights_sha256,
        confidence_scale=1.0,
        many_above=MANY_ABOVE,
        few_below=FEW_BELOW,
        experts=network.experts,
    )
    family = fit_family(table, FamilyRequest(search=ExitsRecipe().search))
    provenance = Provenance(
        recipe={},
        network=f"network of the caller, {network.exits} exits, {len(class_names)} classes",
        data_fingerprint=hashlib.sha256(images.tobytes() + table.labels_N.tobytes()).hexdigest(),
        checkpoint_sha256=weights_sha256,
    )
    fitted = FittedNetwork(network.eval(), family, preprocess, provenance, images[:CHECKED])
    write_file(fitted, Path(out), class_names=class_names, default_point=None)
    return family


def _check_arrays(
    network: StagedNetwork,
    images: NDArray[np.uint8],
    labels_N: NDArray[np.int64],
    class_names: Sequence[str],
    class_counts: Sequence[int],
) -> None:
    if not isinstance(network, StagedNetwork):
        raise RequestError(
            f"network is a {type(network).__name__} without exits; give what attach_exits or build_network returned"
        )
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise RequestError(
            f"images are {images.dtype} of shape {images.shape}; they must be uint8 of shape (N, H, W, 1) or "
            "(N, H, W, 3), before normalisation, for example (255 * images).round().astype('uint8')"
        )
    if len(labels_N) != len(images):
        raise RequestError(f"there are {len(images)} images and {len(labels_N)} labels; give one label per image")
    if not len(class_names) == len(class_counts) == network.classes:
        raise RequestError(
            f"the network has {network.classes} classes, there are {len(class_names)} class_names and "
            f"{len(class_counts)} class_counts; give one of each per class"
        )
    if len(np.unique(labels_N)) < 2 or np.min(labels_N) < 0 or np.max(labels_N) >= network.classes:
        raise RequestError(f"labels must be of at least two classes, from 0 to {network.classes - 1}")


def write_file(fitted: FittedNetwork, path: Path, *, class_names: Sequence[str], default_point: str | None) -> OneFile:
    """Export a fitted network, check it against torch, and write it atomically.

    Args:
        fitted: The network.
        path: The file to write; an existing file is replaced.
        class_names: Names by class index.
        default_point: The operating point for clients that give none; None for `default_point_of`.
    """
    height, width, channels = fitted.preprocess.shape
    graphs = export_stages(fitted.network, (channels, height, width))
    family = fitted.family.to_dict()
    file = FileContent(
        network=fitted.network,
        class_names=tuple(class_names),
        preprocess=fitted.preprocess,
        provenance=fitted.provenance,
        image_input="features" if fitted.preprocess.mode == FEATURE_ROWS else "uint8",
        default_point=default_point,
    )
    draft = file.sealed(graphs, fitted.family, {"float32": FileVariant(family=family)})
    parity = _parity(fitted, graphs, OneFileEngine(verified(path, draft), threads=1), class_names)
    require_parity(parity)
    measured = Measured(accuracy={}, parity=parity, versions=package_versions())
    content = file.sealed(graphs, fitted.family, {"float32": FileVariant(family=family, measured=measured)})
    atomic.write_bytes(path, content)
    return verified(path, content)


def _parity(
    fitted: FittedNetwork, graphs: Sequence[bytes], engine: OneFileEngine, class_names: Sequence[str]
) -> Parity:
    """Compare the graphs and the file with torch on the sample."""
    inputs_NKHW = fitted.preprocess.normalise(fitted.sample)
    family: Family = fitted.family
    logits_NEC = logits_of(fitted.network, [torch.from_numpy(inputs_NKHW)])
    table = ExitTable(
        logits_NEC=logits_NEC,
        labels_N=np.zeros(len(inputs_NKHW), dtype=np.int64),
        cost_E=np.array(family.cost),
        head_cost_E=np.array(family.head_cost),
        plain_multiply_adds=1,
        class_counts_C=np.ones(len(class_names), dtype=np.int64),
        class_names=tuple(class_names),
        split=family.split,
        checkpoint_sha256=family.checkpoint_sha256,
        confidence_scale=1.0,
        many_above=MANY_ABOVE,
        few_below=FEW_BELOW,
    )
    backend = OnnxBackend(graphs, threads=1)
    answers = {name: engine(inputs_NKHW, operating_point=name) for name in engine_points(family)}
    return compare(table, family, all_exit_logits(backend, inputs_NKHW), answers)
