"""Export a run to a bundle of the older kind: a zip or a directory with one graph per stage, and the torch weights.

It is the form from which the torch backends load a network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import safetensors.numpy

from elfnet.errors import WorkError
from elfnet.export.from_run import RunParts
from elfnet.export.run import (
    compare_with_torch,
    make_variants,
    multiply_adds,
    package_versions,
    prepare,
    preprocessing_of,
    provenance_of,
)
from elfnet.export.variants import MadeVariant
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.archive import require_writable, write_bundle
from elfnet.inference.bundle.manifest import (
    MANIFEST,
    WEIGHTS,
    File,
    Manifest,
    Measured,
    PeakMemory,
    Variant,
    graph_name,
    manifest_text,
)
from elfnet.inference.bundle.memory import measure_peak_memory
from elfnet.inference.engine import Engine
from elfnet.models.staged import StagedNetwork
from elfnet.run.directory import RunDirectory
from elfnet.version import __version__


@dataclass(frozen=True)
class ExportedArchive:
    """A bundle of the older kind that was written.

    Attributes:
        path: Where it was written.
        manifest: Its manifest.
        bytes_on_disk: Size of the zip, or of all files of the directory.
    """

    path: Path
    manifest: Manifest
    bytes_on_disk: int


def export_archive(
    run: RunDirectory,
    out: Path,
    *,
    as_directory: bool = False,
    overwrite: bool = False,
    precisions: Sequence[str] = (),
    measure_memory: Callable[[Path], PeakMemory] | None = measure_peak_memory,
    network: StagedNetwork | None = None,
) -> ExportedArchive:
    """Export the last checkpoint of a calibrated run as a zip or a directory.

    Args:
        run: A calibrated run.
        out: The bundle to write.
        as_directory: Write a directory instead of one zip.
        overwrite: Replace the bundle at `out`.
        precisions: Variants besides float32: `int8`, `bfloat16`; see `make_variant`.
        measure_memory: Measures the peak memory of the finished bundle; None to skip it.
        network: The custom network, if the run trained one; see `evaluate_run`.

    Raises:
        RequestError: `out` exists, or a variant is refused.
        WorkError: The graphs differ from torch, the data has changed since training, or writing failed.
    """
    require_writable(out, as_directory=as_directory, overwrite=overwrite)
    with run.lock():
        return _export_locked(run, out, as_directory, precisions, measure_memory, network)


def _export_locked(
    run: RunDirectory,
    path: Path,
    as_directory: bool,
    precisions: Sequence[str],
    measure_memory: Callable[[Path], PeakMemory] | None,
    network: StagedNetwork | None,
) -> ExportedArchive:
    parts, splits, graphs = prepare(run, network)
    # One thread, so that sums are computed in the same order every time.
    engine = Engine(OnnxBackend(graphs, threads=1), parts.family)
    measured = compare_with_torch(parts, run.recipe().data, splits, graphs, engine)
    others = make_variants(run, precisions, graphs, splits, parts, network)
    files = {
        WEIGHTS: _serialised_weights(parts),
        **{graph_name("float32", k + 1): graph for k, graph in enumerate(graphs)},
    }
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
    return ExportedArchive(path, manifest, on_disk)


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
        measured=Measured(accuracy=full, against_float32=made.against_float32, versions=package_versions()),
    )


def _manifest(
    run: RunDirectory,
    parts: RunParts,
    files: dict[str, bytes],
    measured: Measured,
    others: Sequence[MadeVariant],
) -> Manifest:
    counted = multiply_adds(parts)
    graphs = tuple(graph_name("float32", k + 1) for k in range(len(counted.stages)))
    return Manifest(
        elfnet_version=__version__,
        class_names=parts.class_names,
        preprocessing=preprocessing_of(parts),
        multiply_adds=counted,
        variants={
            "float32": Variant(graphs=graphs, family=parts.family.to_dict(), measured=measured),
            **{made.precision: _variant_entry(made, len(graphs)) for made in others},
        },
        files={name: File(sha256=sha256(content).hexdigest(), bytes=len(content)) for name, content in files.items()},
        size_bytes=sum(map(len, files.values())),
        provenance=provenance_of(run, parts),
    )
