"""Backends by name."""

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
class Request:
    """What a backend is made of; a network or its graphs are only fetched by the backends that need them.

    Attributes:
        graphs: gives what `export_stages` wrote, in order.
        network: gives the network itself.
        precision: in which to compute.
        threads: threads that compute one call; None for the backend's own choice.
        image_shape: channels, height and width, where known; graphs know theirs.
    """

    graphs: Callable[[], Sequence[bytes | Path]]
    network: "Callable[[], StagedNetwork]"
    precision: Precision
    threads: int | None
    image_shape: tuple[int, int, int] | None


BACKENDS: Registry[Callable[[Request], Backend]] = Registry("backend")


def open_backend(
    name: str,
    *,
    graphs: Callable[[], Sequence[bytes | Path]],
    network: "Callable[[], StagedNetwork]",
    precision: str = "float32",
    threads: int | None = None,
    image_shape: tuple[int, int, int] | None = None,
) -> Backend:
    """The backend of that name: `onnxruntime`, `openvino`, `torch` or `torch-compiled`; see `Request`."""
    opener = BACKENDS[name]
    chosen = next((known for known in PRECISIONS if known == precision), None)
    if chosen is None:
        raise unknown_name("precision", precision, list(PRECISIONS))
    if threads is not None and threads < 1:
        raise RequestError(f"threads={threads} must be at least 1; leave it out for the backend's own choice")
    return opener(Request(graphs, network, chosen, threads, image_shape))


# Each imports its engine when it is asked for: the base package runs bundles without torch, and openvino is an extra.


@BACKENDS.register("onnxruntime")
def _onnxruntime(request: Request) -> Backend:
    from elfnet.inference.backends.onnxruntime import OnnxBackend

    if request.precision != "float32":
        raise RequestError(
            f"backend 'onnxruntime' computes float32 only, not {request.precision}; "
            f"choose precision float32, or one of the backends openvino, torch and torch-compiled"
        )
    return OnnxBackend(request.graphs(), threads=request.threads)


@BACKENDS.register("openvino")
def _openvino(request: Request) -> Backend:
    from elfnet.inference.backends.openvino import OpenVinoBackend

    return OpenVinoBackend(request.graphs(), precision=request.precision, threads=request.threads)


@BACKENDS.register("torch")
def _torch(request: Request) -> Backend:
    _require_torch("torch")
    from elfnet.inference.backends.torch import TorchBackend

    return TorchBackend(
        request.network(), precision=request.precision, threads=request.threads, image_shape=request.image_shape
    )


@BACKENDS.register("torch-compiled")
def _torch_compiled(request: Request) -> Backend:
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
