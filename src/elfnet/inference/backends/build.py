"""Open a backend by name, in a precision, with a number of threads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from elfnet.errors import RequestError
from elfnet.extras import missing_package
from elfnet.inference.engine import Backend
from elfnet.registry import Registry, unknown_name

if TYPE_CHECKING:
    from elfnet.models.staged import StagedNetwork

Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class BackendRequest:
    """Arguments for opening a backend. A backend calls only one of `graphs` and `network`.

    Attributes:
        graphs: Returns the ONNX graphs of the stages, in order, as `export_stages` writes them.
        network: Returns the torch network.
        precision: Precision of the computation.
        threads: Threads per call; None for the backend's default.
        image_shape: (channels, height, width) if known. Graphs contain their own shape.
    """

    graphs: Callable[[], Sequence[bytes | Path]]
    network: "Callable[[], StagedNetwork]"
    precision: Precision
    threads: int | None
    image_shape: tuple[int, int, int] | None


BACKENDS: Registry[Callable[[BackendRequest], Backend]] = Registry("backend")


def open_backend(
    name: str,
    *,
    graphs: Callable[[], Sequence[bytes | Path]],
    network: "Callable[[], StagedNetwork]",
    precision: str = "float32",
    threads: int | None = None,
    image_shape: tuple[int, int, int] | None = None,
) -> Backend:
    """Open a backend.

    Args:
        name: `onnxruntime`, `openvino`, `torch` or `torch-compiled`.
        graphs: See `BackendRequest`.
        network: See `BackendRequest`.
        precision: `float32` or `bfloat16`.
        threads: See `BackendRequest`.
        image_shape: See `BackendRequest`.

    Raises:
        RequestError: The name or precision is unknown, the backend does not support the precision, `threads` is below
            1, or a package is not installed.
    """
    open_named = BACKENDS[name]
    chosen = next((known for known in PRECISIONS if known == precision), None)
    if chosen is None:
        raise unknown_name("precision", precision, list(PRECISIONS))
    if threads is not None and threads < 1:
        raise RequestError(f"threads={threads} must be at least 1; leave it out for the backend's default")
    return open_named(BackendRequest(graphs, network, chosen, threads, image_shape))


# Imports are local: the base package runs bundles without torch, and openvino is an extra.


@BACKENDS.register("onnxruntime")
def _onnxruntime(request: BackendRequest) -> Backend:
    from elfnet.inference.backends.onnxruntime import OnnxBackend

    if request.precision != "float32":
        raise RequestError(
            f"backend 'onnxruntime' computes float32 only, not {request.precision}; "
            f"choose precision float32, or one of the backends openvino, torch and torch-compiled"
        )
    return OnnxBackend(request.graphs(), threads=request.threads)


@BACKENDS.register("openvino")
def _openvino(request: BackendRequest) -> Backend:
    from elfnet.inference.backends.openvino import OpenVinoBackend

    return OpenVinoBackend(request.graphs(), precision=request.precision, threads=request.threads)


@BACKENDS.register("torch")
def _torch(request: BackendRequest) -> Backend:
    _require_torch("torch")
    from elfnet.inference.backends.torch import TorchBackend

    return TorchBackend(
        request.network(), precision=request.precision, threads=request.threads, image_shape=request.image_shape
    )


@BACKENDS.register("torch-compiled")
def _torch_compiled(request: BackendRequest) -> Backend:
    _require_torch("torch-compiled")
    from elfnet.inference.backends.torch import CompiledTorchBackend

    return CompiledTorchBackend(
        request.network(), precision=request.precision, threads=request.threads, image_shape=request.image_shape
    )


def _require_torch(backend: str) -> None:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise RequestError(missing_package(f"backend {backend}", "torch")) from None
