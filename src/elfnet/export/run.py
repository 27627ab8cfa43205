"""Export a calibrated run to a bundle, after checking the exported graphs against torch."""

# Shapes: N images, K channels, H height, W width

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray

from elfnet.data.build import load_splits
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import WorkError
from elfnet.evaluate.run import evaluate_run, table_of
from elfnet.export.from_run import RunParts, open_parts
from elfnet.export.onnx import export_stages
from elfnet.export.parity import compare, engine_points, join_answers, logits_of_backend, require_parity
from elfnet.export.variants import MadeVariant, evenly_spaced, make_variant
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.archive import require_writable, write_bundle
from elfnet.inference.bundle.manifest import (
    WEIGHTS,
    File,
    Manifest,
    Measured,
    MultiplyAdds,
    PeakMemory,
    Preprocessing,
    Provenance,
    Variant,
    graph_name,
)
from elfnet.inference.bundle.manifest_file import MANIFEST, manifest_text
from elfnet.inference.bundle.memory import measure_peak_memory
from elfnet.inference.engine import Answers, Engine
from elfnet.models.flops import count_cost
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.roles import without_directories
from elfnet.recipe.schema import DataRecipe
from elfnet.run.directory import RunDirectory
from elfnet.version import __version__

CHECKED_IMAGES, CHECKED_BATCH = 512, 64
PACKAGES = ("torch", "onnx", "onnxruntime", "numpy")
"""Packages whose versions a bundle records."""


@dataclass(frozen=True)
class Exported:
    """A bundle that was written.

    Attributes:
        path: Where it was written.
        manifest: Its manifest.
        bytes_on_disk: Size of the zip, or of all files of the directory.
    """

    path: Path
    manifest: Manifest
    bytes_on_disk: int


def export_run(
    run: RunDirectory,
    out: Path | None = None,
    *,
    as_directory: bool = False,
    overwrite: bool = False,
    precisions: Sequence[str] = (),
    measure_memory: Callable[[Path], PeakMemory] | None = measure_peak_memory,
    network: StagedNetwork | None = None,
) -> Exported:
    """Export the last checkpoint of a calibrated run as a bundle.

    Args:
        run: A calibrated run.
        out: The bundle to write; None for `NAME.elfnet` in the run directory, where NAME is the run's name.
        as_directory: Write a directory instead of one zip.
        overwrite: Replace the bundle at `out`.
        precisions: Variants besides float32: `int8`, `bfloat16`; see `make_variant`.
        measure_memory: Measures the peak memory of the finished bundle; None to skip it.
        network: The custom network, if the run trained one; see `evaluate_run`.

    Raises:
        RequestError: `out` exists, or a variant is refused.
        WorkError: The graphs differ from torch, the data has changed since training, or writing failed.
    """
    path = run.root / f"{run.root.resolve().name}.elfnet" if out is None else out
    require_writable(path, as_directory=as_directory, overwrite=overwrite)
    with run.lock():
        return _export_locked(run, path, as_directory, precisions, measure_memory, network)


def _export_locked(
    run: RunDirectory,
    path: Path,
    as_directory: bool,
    precisions: Sequence[str],
    measure_memory: Callable[[Path], PeakMemory] | None,
    network: StagedNetwork | None,
) -> Exported:
    parts = open_parts(run, network=network)
    splits = load_splits(run.recipe().data)
    run.info().require_same_data(splits.fingerprint, where=run.root)
    height, width, channels = parts.preprocess.shape
    graphs = export_stages(parts.network, (channels, height, width))
    measured = _compare_with_torch(parts, run.recipe().data, splits, graphs)
    files = {
        WEIGHTS: _serialised_weights(parts),
        **{graph_name("float32", k + 1): graph for k, graph in enumerate(graphs)},
    }
    normalisation = Normalisation(parts.preprocess.mean, parts.preprocess.std)
    if precisions:
        # `make_variant` reads this table; if it is not stored, only this function has the network to compute it.
        evaluate_run(run, "calibration", network=network)
    others = [make_variant(run, precision, graphs, splits, normalisation) for precision in precisions]
    for made in others:
        files |= {graph_name(made.precision, k + 1): graph for k, graph in enumerate(made.graphs or ())}
    manifest = _manifest(run, parts, files, measured, others)
    if measure_memory is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".elfnet-", dir=path.parent) as staging:
            finished = Path(staging) / "bundle"
            try:
                write_bundle(finished, {**files, MANIFEST: manifest_text(manifest)}, as_directory=True)
            except WorkError as error:
                # The original message names a temporary folder.
                reason = getattr(error.__cause__, "strerror", None) or error
                raise WorkError(f"cannot write {path}: {reason}; what was there is intact") from error
            measured = measured.model_copy(update={"peak_memory": measure_memory(finished)})
        manifest = _manifest(run, parts, files, measured, others)
    files[MANIFEST] = manifest_text(manifest)
    write_bundle(path, files, as_directory=as_directory)
    on_disk = sum(map(len, files.values())) if as_directory else path.stat().st_size
    return Exported(path, manifest, on_disk)


def _compare_with_torch(parts: RunParts, data: DataRecipe, splits: Splits, graphs: list[bytes]) -> Measured:
    """Compare the graphs with torch on evenly spaced images of the calibration split.

    Raises:
        WorkError: The graphs differ from torch.
    """
    chosen = evenly_spaced(len(splits.calibration), CHECKED_IMAGES)
    checked = replace(splits, calibration=splits.calibration.take(chosen))
    normalisation = Normalisation(parts.preprocess.mean, parts.preprocess.std)
    table = table_of(
        parts.network,
        checked,
        "calibration",
        data=data,
        normalisation=normalisation,
        checkpoint_sha256=parts.checkpoint.sha256,
    )
    # One thread, so that sums are computed in the same order every time.
    backend = OnnxBackend(graphs, threads=1)
    engine = Engine(backend, parts.family)
    logits: list[NDArray[np.float32]] = []
    answers: dict[str, list[Answers]] = {name: [] for name in engine_points(parts.family)}
    cpu = torch.device("cpu")
    for batch in evaluation_batches(data, checked.calibration, normalisation, batch_size=CHECKED_BATCH, device=cpu):
        images_NKHW = np.ascontiguousarray(batch.numpy())
        logits.append(logits_of_backend(backend, images_NKHW))
        for name, parts_of_point in answers.items():
            parts_of_point.append(engine(images_NKHW, operating_point=name))
    joined = {name: join_answers(found) for name, found in answers.items()}
    parity = compare(table, parts.family, np.concatenate(logits), joined)
    require_parity(parity)
    accuracy = {name: float((found.prediction_N == table.labels_N).mean()) for name, found in joined.items()}
    return Measured(accuracy=accuracy, parity=parity, versions=_versions())


def _serialised_weights(parts: RunParts) -> bytes:
    # Not np.ascontiguousarray, which would turn a scalar into an array of one element.
    tensors = {name: tensor.contiguous().numpy() for name, tensor in parts.checkpoint.weights.items()}
    return safetensors.numpy.save(tensors)


def _variant_entry(made: MadeVariant, exits: int) -> Variant:
    own = made.precision if made.graphs else "float32"
    full = {"full": made.against_float32.accuracy}
    return Variant(
        precision=made.precision,  # type: ignore[arg-type]  # checked by the schema
        graphs=tuple(graph_name(own, k + 1) for k in range(exits)),
        family=made.family.to_dict(),
        measured=Measured(accuracy=full, against_float32=made.against_float32, versions=_versions()),
    )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


def _manifest(
    run: RunDirectory,
    parts: RunParts,
    files: dict[str, bytes],
    measured: Measured,
    others: Sequence[MadeVariant],
) -> Manifest:
    height, width, channels = parts.preprocess.shape
    cost = count_cost(parts.network, (channels, height, width))
    graphs = tuple(graph_name("float32", k + 1) for k in range(len(cost.stages)))
    return Manifest(
        elfnet_version=__version__,
        class_names=parts.class_names,
        preprocessing=Preprocessing(
            mode=parts.preprocess.mode,  # type: ignore[arg-type]  # checked by the schema
            height=height,
            width=width,
            mean=parts.preprocess.mean,
            std=parts.preprocess.std,
            crop_share=parts.preprocess.crop_share,
        ),
        multiply_adds=MultiplyAdds(stages=cost.stages, heads=cost.heads, plain=cost.plain),
        variants={
            "float32": Variant(graphs=graphs, family=parts.family.to_dict(), measured=measured),
            **{made.precision: _variant_entry(made, len(graphs)) for made in others},
        },
        files={name: File(sha256=sha256(content).hexdigest(), bytes=len(content)) for name, content in files.items()},
        size_bytes=sum(map(len, files.values())),
        provenance=Provenance(
            recipe=without_directories(run.recipe().model_dump(mode="json")),
            network=parts.signature,
            data_fingerprint=run.info().data.fingerprint,
            checkpoint_sha256=parts.checkpoint.sha256,
        ),
    )
