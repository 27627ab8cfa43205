"""Export a calibrated run to one ONNX file, after checking it against torch."""

# Shapes: N images, K channels, H height, W width

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet import atomic
from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_splits
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.run import evaluate_run, table_of
from elfnet.export.assemble import ImageInput
from elfnet.export.file_content import FileContent, package_versions
from elfnet.export.onnx import export_stages
from elfnet.export.parity import compare, engine_points, require_parity
from elfnet.export.read_run import RunParts, open_parts
from elfnet.export.variants import MadeVariant, evenly_spaced, make_variant
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.manifest import Measured, PeakMemory, Provenance
from elfnet.inference.bundle.one_file import FileManifest, FileVariant, verified
from elfnet.inference.bundle.peak_memory import measure_peak_memory
from elfnet.inference.engine import Answers, Engine, all_exit_logits, join_answers
from elfnet.inference.one_file_engine import OneFileEngine
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.roles import without_directories
from elfnet.recipe.schema import DataRecipe
from elfnet.run.directory import RunDirectory

CHECKED_IMAGES, CHECKED_BATCH = 512, 64


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        path: Where it was written.
        manifest: Its metadata.
        identity: Hash of all of it but measurements.
        bytes_on_disk: Its size.
        int8: The file in 8-bit integers, if one was written.
    """

    path: Path
    manifest: FileManifest
    identity: str
    bytes_on_disk: int
    int8: "Exported | None" = None


def export_run(
    run: RunDirectory,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    precisions: Sequence[str] = (),
    default_point: str | None = None,
    required_inputs: bool = False,
    image_input: Literal["uint8", "float32"] = "uint8",
    measure_memory: Callable[[Path], PeakMemory] | None = measure_peak_memory,
    network: StagedNetwork | None = None,
) -> Exported:
    """Export the network of a calibrated run as one ONNX file that stops early.

    Args:
        run: A calibrated run.
        out: The file to write; None for `NAME.onnx` in the run directory, where NAME is the run's name.
        overwrite: Replace the file at `out`.
        precisions: `int8` also writes `NAME-int8.onnx`; `bfloat16` adds operating points for OpenVINO.
        default_point: The operating point for clients that give none; None for `default_point_of`.
        required_inputs: Write the inputs without defaults, for ONNX Runtime in Node and in browsers.
        image_input: What the input `images` holds: `uint8` as in an image file, or normalised `float32`. A run on
            feature rows has the input `features` instead, before normalisation.
        measure_memory: Measures the peak memory of the finished file; None to skip it.
        network: The custom network, if the run trained one; see `evaluate_run`.

    Raises:
        RequestError: `out` exists, an operating point is unknown, or a variant is refused.
        WorkError: The graph differs from torch, the data has changed since training, or writing failed.

    Example:
        >>> from pathlib import Path
        >>> from elfnet import export_run, open_run
        >>> exported = export_run(open_run("runs/first"), Path("digits.onnx"), measure_memory=None)
        >>> exported.path.name
        'digits.onnx'
    """
    path = default_path(run) if out is None else out
    smaller = path.with_name(f"{path.stem}-int8{path.suffix}") if "int8" in precisions else None
    for wanted in (path, smaller):
        if wanted is not None:
            _require_writable(wanted, overwrite=overwrite)
    with run.lock():
        parts, splits, graphs = prepare(run, network)
        if parts.preprocess.reads_rows and image_input != "uint8":
            raise RequestError(f"{run.root} was trained on feature rows, not on images; leave out --image-input")
        reads: ImageInput = "features" if parts.preprocess.reads_rows else image_input
        file = FileContent(
            network=parts.network,
            class_names=parts.class_names,
            preprocess=parts.preprocess,
            provenance=provenance_of(run, parts),
            image_input=reads,
            default_point=default_point,
            required_inputs=required_inputs,
        )
        writer = _Writer(file, measure_memory)
        draft = file.sealed(graphs, parts.family, {"float32": FileVariant(family=parts.family.to_dict())})
        # One thread, so that sums are computed in the same order every time.
        engine = OneFileEngine(verified(path, draft), threads=1)
        measured = compare_with_torch(parts, run.recipe().data, splits, graphs, engine)
        variants = {"float32": FileVariant(family=parts.family.to_dict(), measured=measured)}
        small = None
        for made in make_variants(run, precisions, graphs, splits, parts, network):
            entry = FileVariant(family=made.family.to_dict(), measured=_measured_against_float32(made))
            if made.graphs is None:
                variants[made.precision] = entry
            else:
                small = (made, {made.precision: entry})
        written = None
        if small is not None and smaller is not None:
            made, entries = small
            written = writer.write(smaller, made.graphs or (), made.family, entries)
        return replace(writer.write(path, graphs, parts.family, variants), int8=written)


def default_path(run: RunDirectory) -> Path:
    """Return the file that an export writes if none is named."""
    return run.root / f"{run.root.resolve().name}.onnx"


def _require_writable(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that exists, unless `overwrite` is given and the path is a file."""
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise RequestError(f"{path} exists; give --overwrite, or another --out")
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "not a regular file"
        raise RequestError(f"{path} is {kind}; name another --out")


@dataclass(frozen=True)
class _Writer:
    file: FileContent
    measure_memory: Callable[[Path], PeakMemory] | None

    def write(self, path: Path, graphs: Sequence[bytes], family: Family, variants: dict[str, FileVariant]) -> Exported:
        content = self.file.sealed(graphs, family, variants)
        if self.measure_memory is not None:
            precision, variant = next(iter(variants.items()))
            memory = self._peak_memory(path, content)
            measured = None if variant.measured is None else variant.measured.model_copy(update={"peak_memory": memory})
            variants = {**variants, precision: variant.model_copy(update={"measured": measured})}
            content = self.file.sealed(graphs, family, variants)
        atomic.write_bytes(path, content)
        bundle = verified(path, content)
        return Exported(path, bundle.manifest, bundle.identity, len(content))

    def _peak_memory(self, path: Path, content: bytes) -> PeakMemory:
        assert self.measure_memory is not None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".elfnet-", dir=path.parent) as staging:
                finished = Path(staging) / "model.onnx"
                finished.write_bytes(content)
                return self.measure_memory(finished)
        except OSError as error:
            raise WorkError(f"cannot write {path}: {error.strerror or error}; what was there is intact") from error


def prepare(run: RunDirectory, network: StagedNetwork | None) -> tuple[RunParts, Splits, list[bytes]]:
    """Read a run and its data, and export its stages.

    Raises:
        WorkError: The data has changed since training.
    """
    parts = open_parts(run, network=network)
    splits = load_splits(run.recipe().data)
    run.info().require_same_data(splits.fingerprint, where=run.root)
    height, width, channels = parts.preprocess.shape
    return parts, splits, export_stages(parts.network, (channels, height, width))


def make_variants(
    run: RunDirectory,
    precisions: Sequence[str],
    graphs: Sequence[bytes],
    splits: Splits,
    parts: RunParts,
    network: StagedNetwork | None,
) -> list[MadeVariant]:
    """Make the variants in other precisions; see `make_variant`."""
    if precisions and not len(splits.calibration):
        raise RequestError(
            f"{precisions[0]} needs calibration images to fit its thresholds on, and the run in {run.root} has none; "
            "export it in float32"
        )
    if precisions:
        # `make_variant` reads this table; if it is not stored, only this function has the network to compute it.
        evaluate_run(run, "calibration", checkpoint=parts.family.checkpoint, network=network)
    normalisation = Normalisation(parts.preprocess.mean, parts.preprocess.std)
    checkpoint = parts.family.checkpoint
    return [
        make_variant(run, precision, graphs, splits, normalisation, checkpoint=checkpoint) for precision in precisions
    ]


def _measured_against_float32(made: MadeVariant) -> Measured:
    full = {"full": made.against_float32.accuracy}
    return Measured(accuracy=full, against_float32=made.against_float32, versions=package_versions())


def compare_with_torch(
    parts: RunParts, data: DataRecipe, splits: Splits, graphs: Sequence[bytes], engine: Engine
) -> Measured:
    """Compare the graphs with torch on evenly spaced images of the calibration split; without one, of training.

    Args:
        parts: The run.
        data: Its data settings.
        splits: Its data.
        graphs: The graphs of its stages, whose logits are compared.
        engine: The engine that will run them; its answers are compared at some operating points.

    Raises:
        WorkError: The graphs differ from torch.
    """
    examples = splits.calibration if len(splits.calibration) else splits.train
    checked = replace(splits, calibration=examples.take(evenly_spaced(len(examples), CHECKED_IMAGES)))
    normalisation = Normalisation(parts.preprocess.mean, parts.preprocess.std)
    table = table_of(
        parts.network,
        checked,
        "calibration",
        data=data,
        normalisation=normalisation,
        checkpoint_sha256=parts.checkpoint.sha256,
    )
    backend = OnnxBackend(graphs, threads=1)
    logits: list[NDArray[np.float32]] = []
    answers: dict[str, list[Answers]] = {name: [] for name in engine_points(parts.family)}
    cpu = torch.device("cpu")
    for batch in evaluation_batches(data, checked.calibration, normalisation, batch_size=CHECKED_BATCH, device=cpu):
        images_NKHW = np.ascontiguousarray(batch.numpy())
        logits.append(all_exit_logits(backend, images_NKHW))
        for name, parts_of_point in answers.items():
            parts_of_point.append(engine(images_NKHW, operating_point=name))
    joined = {name: join_answers(found) for name, found in answers.items()}
    parity = compare(table, parts.family, np.concatenate(logits), joined)
    require_parity(parity)
    accuracy = {name: float((found.prediction_N == table.labels_N).mean()) for name, found in joined.items()}
    return Measured(accuracy=accuracy, parity=parity, versions=package_versions())


def provenance_of(run: RunDirectory, parts: RunParts) -> Provenance:
    """Return the origin of the network for the manifest."""
    return Provenance(
        recipe=without_directories(run.recipe().model_dump(mode="json")),
        network=parts.signature,
        data_fingerprint=run.info().data.fingerprint,
        checkpoint_sha256=parts.checkpoint.sha256,
    )
