"""Opening a bundle as a model: verified, and with the base package alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from elfnet.deploy.backends import open_backend
from elfnet.deploy.bundle.read import Bundle, open_bundle
from elfnet.deploy.engine import Engine
from elfnet.deploy.model import Model
from elfnet.errors import RequestError

if TYPE_CHECKING:
    from elfnet.models.staged import StagedNetwork

DEFAULT_BACKEND = "onnxruntime"


def load(
    path: str | Path,
    *,
    backend: str = DEFAULT_BACKEND,
    threads: int | None = None,
    deepest_exit: int | None = None,
    abstain_below: float = 0.0,
    variant: str = "float32",
) -> Model:
    """A bundle, every byte of it checked against its hash, ready to answer.

    Args:
        path: a `.elfnet` file, or the directory of one.
        backend: what computes the stages: `onnxruntime`; or `openvino`, `torch`, `torch-compiled` where installed.
        threads: of the backend; its own choice by default.
        deepest_exit: everybody who is still there leaves at this exit (from 1): a cap on the worst case.
        abstain_below: answers with a final confidence below this are withheld.
        variant: the precision, of those that the bundle holds.

    Example:
        model = load("runs/elf/elf.elfnet")
        model.set_operating_point(0.6)
        model.predict("cat.png")[0].label
    """
    bundle = open_bundle(path, variant=variant)
    precision = bundle.manifest.variants[variant].precision
    preprocess = bundle.manifest.preprocessing.preprocess()
    height, width, channels = preprocess.shape
    computes = open_backend(
        backend,
        graphs=lambda: bundle.graphs,
        network=lambda: _network(bundle, precision),
        # Graphs in 8-bit integers say so themselves; whoever runs them needs no other setting.
        precision="bfloat16" if precision == "bfloat16" else "float32",
        threads=threads,
        image_shape=(channels, height, width),
    )
    engine = Engine(
        computes,
        bundle.family,
        deepest_exit=exit_from_zero(deepest_exit, bundle.family.exits),
        abstain_below=abstain_below,
    )
    return Model(engine, preprocess, bundle.manifest.class_names)


def _network(bundle: Bundle, precision: str) -> "StagedNetwork":
    if precision == "int8":
        raise RequestError("variant int8 exists as graphs only; choose backend onnxruntime or openvino")
    from elfnet.deploy.bundle.network import network_of_bundle

    return network_of_bundle(bundle)


def exit_from_zero(exit_number: int | None, exits: int) -> int | None:
    """Exits are counted from 1 where people name them, from 0 in arrays."""
    if exit_number is None:
        return None
    if not 1 <= exit_number <= exits:
        raise RequestError(f"deepest_exit={exit_number} must lie in 1..{exits}")
    return exit_number - 1
