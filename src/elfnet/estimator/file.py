"""Write a fitted network as one ONNX file, and read such a file; the file is that of `elfnet export`."""

# Shapes: N examples, C classes

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from elfnet import atomic
from elfnet.calibrate.family import Family
from elfnet.estimator.fitted import FittedNetwork
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.run import logits_of
from elfnet.export.assemble import assemble
from elfnet.export.model_card import model_card
from elfnet.export.onnx import export_stages
from elfnet.export.parity import compare, engine_points, require_parity
from elfnet.export.run import default_point_of, package_versions
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.manifest import Measured, MultiplyAdds, Parity, Preprocessing
from elfnet.inference.bundle.one_file import FileManifest, FileVariant, OneFile, sealed, verified
from elfnet.inference.engine import all_exit_logits
from elfnet.inference.one_file_engine import OneFileEngine
from elfnet.inference.point_inputs import PointInputs
from elfnet.inference.preprocess import FEATURE_ROWS
from elfnet.models.flops import count_cost
from elfnet.version import __version__


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
    draft = _content(fitted, graphs, class_names, default_point, None)
    parity = _parity(fitted, graphs, OneFileEngine(verified(path, draft), threads=1), class_names)
    require_parity(parity)
    measured = Measured(accuracy={}, parity=parity, versions=package_versions())
    content = _content(fitted, graphs, class_names, default_point, measured)
    atomic.write_bytes(path, content)
    return verified(path, content)


def _content(
    fitted: FittedNetwork,
    graphs: Sequence[bytes],
    class_names: Sequence[str],
    default_point: str | None,
    measured: Measured | None,
) -> bytes:
    family, preprocess = fitted.family, fitted.preprocess
    default = default_point or default_point_of(family)
    image_input = "features" if preprocess.mode == FEATURE_ROWS else "uint8"
    inputs = PointInputs.of(family)
    model = assemble(graphs, family, image_input=image_input, preprocess=preprocess, default_point=default)
    height, width, channels = preprocess.shape
    cost = count_cost(fitted.network, (channels, height, width))
    manifest = FileManifest(
        elfnet_version=__version__,
        image_input=image_input,
        class_names=tuple(class_names),
        default_point=default,
        operating_points={
            point.name: {name: tuple(value[0].tolist()) for name, value in inputs.values(point.policy).items()}
            for point in family.points
        },
        variants={"float32": FileVariant(family=family.to_dict(), measured=measured)},
        preprocessing=Preprocessing(
            mode=preprocess.mode,  # type: ignore[arg-type]  # checked by the schema
            height=height,
            width=width,
            mean=preprocess.mean,
            std=preprocess.std,
        ),
        multiply_adds=MultiplyAdds(stages=cost.stages, heads=cost.heads, plain=cost.plain),
        provenance=fitted.provenance,
        model_card=model_card(family, class_names, preprocess, default),
    )
    return sealed(model.SerializeToString(deterministic=True), manifest)


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
        many_above=100,
        few_below=20,
    )
    backend = OnnxBackend(graphs, threads=1)
    answers = {name: engine(inputs_NKHW, operating_point=name) for name in engine_points(family)}
    return compare(table, family, all_exit_logits(backend, inputs_NKHW), answers)
