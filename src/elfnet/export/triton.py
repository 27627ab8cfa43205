"""Write a model repository for the Triton Inference Server from a bundle that is one ONNX file.

Two models are written. Triton's ONNX Runtime backend refuses optional inputs in models that batch, so one model reads
images only and uses the file's default operating point, and the other reads the operating point with every request.
Both batch requests, the second also those of different operating points.
"""

import json
import os
from pathlib import Path

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.inference.bundle.one_file import OneFile, without_defaults
from elfnet.inference.graph_inputs import IMAGES, PointInputs

WITH_POINT = "-with-point"
"""Ends the name of the model that reads the operating point with every request."""
LABELS = "labels.txt"
MAX_BATCH = 64
QUEUE_DELAY_MICROSECONDS = 1000


def require_free(directory: Path, name: str, *, overwrite: bool) -> list[Path]:
    """Return the directories of both models, and refuse a name that Triton does not take, or models that exist.

    Raises:
        RequestError: The name is not one that Triton takes, or a model exists and `overwrite` is False.
    """
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
        raise RequestError(f"{name!r} is no name for a Triton model; give --out a name of letters, digits, - and _")
    places = [directory / model for model in (name, name + WITH_POINT)]
    for place in places:
        if os.path.lexists(place) and not overwrite:
            raise RequestError(f"{place} exists; give --overwrite, or another --triton directory")
    return places


def write_repository(bundle: OneFile, directory: Path, name: str, *, overwrite: bool = False) -> list[Path]:
    """Write both models into a model repository, and return their directories.

    Args:
        bundle: The file, with default inputs.
        directory: The repository; it may hold other models.
        name: Name of the first model.
        overwrite: Replace files of models with these names.

    Raises:
        RequestError: The name is not one that Triton takes, the file has no defaults, or a model exists.
        WorkError: Writing failed.
    """
    written = require_free(directory, name, overwrite=overwrite)
    if not bundle.has_defaults:
        raise RequestError(f"{bundle.path} has no default inputs, which Triton needs; export without --required-inputs")
    if bundle.manifest.image_input != "uint8":
        raise RequestError(f"{bundle.path} reads {bundle.manifest.image_input}; a Triton model needs uint8 images")
    models = {name: (bundle.content, False), name + WITH_POINT: (without_defaults(bundle), True)}
    labels = "".join(f"{label}\n" for label in bundle.manifest.class_names)
    for place, (model, (content, with_point)) in zip(written, models.items(), strict=True):
        try:
            (place / "1").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkError(f"cannot write {place}: {error.strerror or error}") from error
        atomic.write_bytes(place / "1" / "model.onnx", content)
        atomic.write_text(place / LABELS, labels)
        atomic.write_text(place / "config.pbtxt", model_config(bundle, model, with_point=with_point))
    return written


def model_config(bundle: OneFile, name: str, *, with_point: bool) -> str:
    """Return the text of `config.pbtxt`.

    Args:
        bundle: The file.
        name: Name of the model.
        with_point: Whether the operating point is read with every request.
    """
    inputs = [_tensor(IMAGES, "TYPE_UINT8", bundle.manifest.preprocessing.preprocess().shape)]
    if with_point:
        widths = PointInputs.of(bundle.family).widths
        inputs += [_tensor(input_name, "TYPE_FP32", (width,)) for input_name, width in widths.items()]
    classes = len(bundle.manifest.class_names)
    # Triton tensors have a dimension besides the batch; those of the graph have none.
    flat = " reshape { shape: [ ] }"
    outputs = [
        _tensor("class", "TYPE_INT64", (1,), flat),
        _tensor("confidence", "TYPE_FP32", (1,), flat),
        _tensor("probabilities", "TYPE_FP32", (classes,), f" label_filename: {json.dumps(LABELS)}"),
        _tensor("exit", "TYPE_INT64", (1,), flat),
        _tensor("cost", "TYPE_FP32", (1,), flat),
    ]
    return "\n".join(
        [
            f"name: {json.dumps(name)}",
            'platform: "onnxruntime_onnx"',
            f"max_batch_size: {MAX_BATCH}",
            "input [",
            ",\n".join(inputs),
            "]",
            "output [",
            ",\n".join(outputs),
            "]",
            f"dynamic_batching {{ max_queue_delay_microseconds: {QUEUE_DELAY_MICROSECONDS} }}",
            "instance_group [ { kind: KIND_CPU count: 1 } ]",
            "",
        ]
    )


def _tensor(name: str, kind: str, shape: tuple[int, ...], rest: str = "") -> str:
    return f"  {{ name: {json.dumps(name)} data_type: {kind} dims: [ {', '.join(map(str, shape))} ]{rest} }}"
