"""The manifest: written as told, read back the same, and anything else refused with the place and the reason."""

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from older_bundles import manifest_text

from elfnet.errors import WorkError
from elfnet.inference.bundle.manifest import (
    Manifest,
    Measured,
    Parity,
    PeakMemory,
    PointParity,
    identity_of,
    read_manifest,
)

Fields = dict[str, Any]


def sealed(content: Fields) -> bytes:
    """JSON with hashes that are right, as a forger would make it."""

    def digest(fields: Fields) -> str:
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    content = {"format": "elfnet-bundle", "format_version": 1, **copy.deepcopy(content)}
    content.setdefault("identity", "0" * 64)
    return json.dumps({**content, "sha256": digest(content)}).encode()


def refused(text: bytes) -> str:
    with pytest.raises(WorkError) as caught:
        read_manifest(text, where="it.elfnet")
    message = str(caught.value)
    assert message.startswith("it.elfnet")
    return message


@pytest.fixture
def manifest(manifest_fields: Fields) -> Manifest:
    return Manifest.model_validate_json(json.dumps(manifest_fields))


def test_it_comes_back_as_it_was(manifest: Manifest) -> None:
    assert read_manifest(manifest_text(manifest), where="it") == manifest


def test_costs_relative_to_the_plain_backbone(manifest: Manifest) -> None:
    assert manifest.multiply_adds.relative == pytest.approx((0.15, 0.50, 1.10))


def test_the_identity_leaves_out_what_was_measured(manifest: Manifest) -> None:
    measured = Measured(
        accuracy={"full": 0.9},
        parity=Parity(
            split="calibration",
            images=9,
            largest_logit=3.0,
            largest_difference=(1e-6, 1e-6, 1e-6),
            points={"full": PointParity(differ=0, on_the_edge=0)},
            engine_points=("full",),
        ),
        peak_memory=PeakMemory(batch=32, bytes=10**8, before_loading=10**7),
        versions={"torch": "2"},
    )
    variant = manifest.variants["float32"].model_copy(update={"measured": measured})
    other = manifest.model_copy(update={"variants": {"float32": variant}})
    assert manifest_text(other) != manifest_text(manifest)
    assert identity_of(other) == identity_of(manifest)
    renamed = manifest.model_copy(update={"class_names": tuple("abce")})
    assert identity_of(renamed) != identity_of(manifest)
    assert read_manifest(manifest_text(other), where="it").variants["float32"].measured == measured


def test_one_altered_number_is_found(manifest: Manifest) -> None:
    text = manifest_text(manifest).decode()
    assert "was altered" in refused(text.replace('"plain": 100', '"plain": 101').encode())
    assert "was altered" in refused(text.replace('"sha256": "', '"sha256": "0', 1).encode())


def test_a_forged_identity_is_found(manifest_fields: Fields) -> None:
    assert "identity" in refused(sealed(manifest_fields))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"\xff\xfe\x00", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b'{"format": NaN}', "NaN is not a number"),
        (b"[]", "is not an elfnet bundle"),
        (b'{"format": "other"}', "is not an elfnet bundle"),
        (b'{"format": "elfnet-bundle"}', "format version None, this elfnet reads 1; export the run again"),
        (b'{"format": "elfnet-bundle", "format_version": 2}', "format version 2, this elfnet reads 1; update elfnet"),
        (b'{"format": "elfnet-bundle", "format_version": 1}', "was altered"),
    ],
)
def test_what_is_no_manifest(text: bytes, expected: str) -> None:
    assert expected in refused(text)


def _set(*path: str, value: Any) -> Callable[[Fields], None]:
    def spoil(fields: Fields) -> None:
        for key in path[:-1]:
            fields = fields[key]
        fields[path[-1]] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda fields: fields.pop("class_names"), "class_names: Field required"),
        (_set("surprise", value=1), "surprise: Extra inputs are not permitted"),
        (_set("class_names", value=[]), "class_names is empty"),
        (_set("class_names", value=["a", "b", "c\x1b[2J", "d"]), "class_names.2: a class name is empty or has control"),
        (_set("class_names", value=["a", 3]), "class_names.1"),
        (_set("preprocessing", "mode", value="CMYK"), "preprocessing.mode"),
        (_set("preprocessing", "height", value="8"), "preprocessing.height"),
        (_set("preprocessing", "height", value=10**9), "preprocessing.height"),
        (_set("preprocessing", "std", value=[0.0]), "preprocessing.std.0"),
        (_set("preprocessing", "mean", value=[0.5, 0.5, 0.5]), "mode L needs 1 means"),
        (_set("preprocessing", "resize", value="nearest"), "preprocessing.resize"),
        (_set("multiply_adds", "plain", value=101), "plain is not the sum"),
        (_set("multiply_adds", "heads", value=[5, 1]), "3 stages and 2 heads"),
        (_set("variants", value={}), "the variant float32 is missing"),
        (_set("variants", "float32", "graphs", value=["stages/1.onnx"]), "has 1 stages, multiply_adds has 3"),
        (_set("files", "../../evil", value={"sha256": "0" * 64, "bytes": 1}), "files are not the weights and the"),
        (_set("files", "weights.safetensors", "sha256", value="0" * 63), "files.weights.safetensors.sha256"),
        (_set("size_bytes", value=1), "size_bytes is not the sum"),
        (_set("provenance", "checkpoint_sha256", value="x"), "provenance.checkpoint_sha256"),
    ],
)
def test_wrong_fields(manifest_fields: Fields, spoil: Callable[[Fields], object], expected: str) -> None:
    spoil(manifest_fields)
    assert expected in refused(sealed(manifest_fields))
