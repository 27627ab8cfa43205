"""A run directory as a model, without a bundle in between."""

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.deploy.backends import open_backend
from elfnet.deploy.engine import Engine
from elfnet.deploy.load import exit_from_zero
from elfnet.deploy.model import Model
from elfnet.deploy.run_parts import RunParts, open_parts


def model_of_run(
    run: RunDirectory,
    *,
    backend: str = "torch",
    threads: int | None = None,
    deepest_exit: int | None = None,
    abstain_below: float = 0.0,
) -> Model:
    """The last checkpoint with the run's operating points; arguments as of `elfnet.load`."""
    parts = open_parts(run)
    height, width, channels = parts.preprocess.shape
    computes = open_backend(
        backend,
        graphs=lambda: _graphs(parts),
        network=lambda: parts.network,
        threads=threads,
        image_shape=(channels, height, width),
    )
    engine = Engine(
        computes,
        parts.family,
        deepest_exit=exit_from_zero(deepest_exit, parts.family.exits),
        abstain_below=abstain_below,
    )
    return Model(engine, parts.preprocess, parts.class_names)


def _graphs(parts: RunParts) -> list[bytes]:
    from elfnet.deploy.onnx_export import export_stages

    height, width, channels = parts.preprocess.shape
    return export_stages(parts.network, (channels, height, width))
