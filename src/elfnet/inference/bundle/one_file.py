"""The bundle that is one ONNX file: its metadata, its hash, and other graphs that are cut out of it.

The hash is the SHA-256 of the file in which its own 64 characters are replaced by `0`. It detects damage. It does not
prove who wrote the file.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import ValidationError, model_validator

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError, WorkError
from elfnet.inference.bundle.manifest import (
    ClassName,
    Measured,
    MultiplyAdds,
    Preprocessing,
    Provenance,
)
from elfnet.inference.bundle.protobuf import (
    GRAPH_INPUT,
    GRAPH_NAME,
    GRAPH_NODE,
    GRAPH_OUTPUT,
    GRAPH_WEIGHT,
    MODEL_GRAPH,
    MODEL_METADATA,
    ModelParts,
    encode,
    graph_without,
    walk,
)
from elfnet.inference.bundle.read import read_family
from elfnet.inference.bundle.stage_graph import FEATURES, LOGITS, NEXT_FEATURES, PLACE, in_stage, join_parts
from elfnet.inference.graph_inputs import ABSTAIN_BELOW, IMAGES, PointInputs
from elfnet.inference.preprocess import FEATURE_ROWS
from elfnet.registry import unknown_name
from elfnet.run.json_file import Strict

PREFIX = "elfnet:"
"""Beginning of our metadata keys."""
SHA256 = "elfnet:sha256"
NO_HASH = "0" * 64
FORMAT_VERSION: Final = 1
NORMALISE = "normalise/"
"""Beginning of the names of the nodes that turn uint8 images into the input of the first stage."""
MAX_BYTES = 2**31 - 1
"""Largest size of a protobuf message."""


class FileVariant(Strict):
    """Operating points for one precision.

    Attributes:
        family: The operating points, as `Family.to_dict` writes them.
        measured: Measurements on the exporting machine, if any.
    """

    family: dict[str, Any]
    measured: Measured | None = None


class FileManifest(Strict):
    """The metadata of a bundle that is one ONNX file. Each field is a property `elfnet:FIELD`: text, or JSON.

    Attributes:
        format_version: Version of this list of fields.
        elfnet_version: The version that wrote the file.
        precision: Precision of the graph.
        image_input: What the input `images` holds: `uint8` images as in a file, or normalised `float32` ones; or
            `features` for a network whose input `features` holds feature rows.
        class_names: Names by class index.
        default_point: The operating point whose values are the defaults of the inputs.
        operating_points: By name, the value of every input besides the images.
        variants: By precision; that of the graph, and bfloat16 if OpenVINO may run it so.
        preprocessing: How an image becomes the input.
        multiply_adds: Multiply-adds per image.
        provenance: Origin of the network.
        model_card: What the model is, for people, in Markdown.
    """

    format_version: Literal[1] = FORMAT_VERSION
    elfnet_version: str
    precision: Literal["float32", "int8"] = "float32"
    image_input: Literal["uint8", "float32", "features"] = "uint8"
    class_names: tuple[ClassName, ...]
    default_point: str
    operating_points: dict[str, dict[str, tuple[float, ...]]]
    variants: dict[str, FileVariant]
    preprocessing: Preprocessing
    multiply_adds: MultiplyAdds
    provenance: Provenance
    model_card: str

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if not self.class_names:
            raise ValueError("class_names is empty")
        if self.precision not in self.variants:
            raise ValueError(f"the variant {self.precision} is missing")
        if (self.image_input == FEATURE_ROWS) != (self.preprocessing.mode == FEATURE_ROWS):
            raise ValueError(f"the input is {self.image_input}, the preprocessing is for {self.preprocessing.mode}")
        if self.default_point not in self.operating_points:
            raise ValueError(f"the default point {self.default_point!r} is not an operating point")
        return self

    def properties(self) -> dict[str, str]:
        """Return the metadata of the file, without its hash."""
        content = self.model_dump(mode="json")
        texts = {key: value if isinstance(value, str) else _json(value) for key, value in content.items()}
        return {PREFIX + key: text for key, text in texts.items()}

    @classmethod
    def of_properties(cls, metadata: Mapping[str, str], *, where: str) -> Self:
        """Read the metadata of a file.

        Raises:
            WorkError: The metadata is missing, of another version, or not valid.
        """
        version = metadata.get(PREFIX + "format_version")
        if version is None:
            raise WorkError(f"{where} is an ONNX file without elfnet's metadata; make one with 'elfnet export RUN'")
        if version != str(FORMAT_VERSION):
            way_out = "update elfnet" if version.isdecimal() else "export the run again"
            raise WorkError(f"{where} has file format version {version}, this elfnet reads {FORMAT_VERSION}; {way_out}")
        own = {key.removeprefix(PREFIX): text for key, text in metadata.items() if key.startswith(PREFIX)}
        own.pop("sha256", None)
        texts = {name for name, field in cls.model_fields.items() if field.annotation is str}
        texts |= {"precision", "image_input"}
        try:
            content = {key: text if key in texts else json.loads(text) for key, text in own.items()}
            return cls.model_validate_json(json.dumps(content))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "metadata"
            reason = first["msg"].removeprefix("Value error, ")
            raise WorkError(f"{where}: the metadata is not valid ({place}: {reason}); export the run again") from error
        except (ValueError, RecursionError) as error:
            raise WorkError(f"{where}: the metadata is damaged ({error}); export the run again") from error

    def identity(self, graph_sha256: str) -> str:
        """Return a hash of the graph and of all metadata but measurements; two exports of a run have the same."""
        content = self.model_dump(mode="json")
        for variant in content["variants"].values():
            del variant["measured"]
        return hashlib.sha256(f"{graph_sha256} {_json(content)}".encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class OneFile:
    """A verified bundle that is one ONNX file.

    Attributes:
        path: Where it was read from.
        content: Its bytes.
        manifest: Its metadata.
        parts: What the walk through it found.
        family: The operating points of the chosen variant.
    """

    path: Path
    content: bytes
    manifest: FileManifest
    parts: ModelParts
    family: Family

    @property
    def exits(self) -> int:
        return len(self.manifest.multiply_adds.stages)

    @property
    def input_name(self) -> str:
        """Name of the input that holds images or feature rows."""
        return FEATURES if self.manifest.image_input == FEATURE_ROWS else IMAGES

    @property
    def has_defaults(self) -> bool:
        """Whether the inputs besides images have defaults."""
        return ABSTAIN_BELOW in self.parts.weights

    @cached_property
    def identity(self) -> str:
        """Hash of everything but measurements."""
        return self.manifest.identity(hashlib.sha256(self.parts.header + bytes(self.parts.graph)).hexdigest())

    def with_normalised_input(self) -> tuple[bytes, str]:
        """Return the model for images that are normalised already, and the name of its input."""
        name = in_stage(0, FEATURES)
        value = bytes(self.parts.values[name])
        graph = graph_without(self.parts.graph, prefix=NORMALISE, inputs={self.input_name: (name, value)})
        return self.parts.header + encode(MODEL_GRAPH, graph), name

    def stage_graphs(self) -> list[bytes]:
        """Return a graph per stage with its head, in the form that `export_stages` returns."""
        return [_stage_graph(self.parts, k) for k in range(self.exits)]


def _stage_graph(parts: ModelParts, k: int) -> bytes:
    prefix, head = in_stage(k, ""), in_stage(k, "head/")
    stage_nodes = [node for name, node in parts.nodes.items() if name.startswith(prefix) and not name.startswith(head)]
    head_nodes = [node for name, node in parts.nodes.items() if name.startswith(head)]
    weights = [tensor for name, tensor in parts.weights.items() if name.startswith(prefix)]
    named = [(name.removeprefix(prefix), value) for name, value in parts.values.items() if name.startswith(prefix)]
    stage = b"".join(
        [
            *(encode(GRAPH_NODE, node) for node in stage_nodes),
            encode(GRAPH_NAME, f"stage_{k}".encode()),
            *(encode(GRAPH_WEIGHT, tensor) for tensor in weights),
            *(encode(GRAPH_INPUT, value) for name, value in named if name.startswith(FEATURES)),
            *(encode(GRAPH_OUTPUT, value) for name, value in named if name.startswith(NEXT_FEATURES)),
        ]
    )
    logits = [encode(GRAPH_OUTPUT, value) for name, value in named if name == LOGITS]
    # The weights of the head stay with the stage: ONNX Runtime drops what nothing reads.
    model, place = join_parts(
        parts.header, stage, b"".join([*(encode(GRAPH_NODE, node) for node in head_nodes), *logits])
    )
    return model + encode(MODEL_METADATA, _entry(PLACE, place))


def _entry(key: str, value: str) -> bytes:
    return encode(1, key.encode()) + encode(2, value.encode())


def sealed(model: bytes, manifest: FileManifest) -> bytes:
    """Return a bundle: a model with metadata and hash appended.

    Args:
        model: A serialised model without metadata.
        manifest: The metadata.

    Raises:
        WorkError: The model contains what a bundle must not.
    """
    walk(model, where="the new file")
    return with_metadata(model, manifest)


def with_metadata(model: bytes, manifest: FileManifest) -> bytes:
    """Return a model with metadata and hash appended, whatever operators it has; see `sealed`."""
    properties = {**manifest.properties(), SHA256: NO_HASH}
    entries = {key: encode(MODEL_METADATA, _entry(key, value)) for key, value in sorted(properties.items())}
    # The hash is the end of its entry.
    at = len(model) - len(NO_HASH)
    for key, entry in entries.items():
        at += len(entry)
        if key == SHA256:
            break
    content = model + b"".join(entries.values())
    return content[:at] + hash_of(content, at).encode() + content[at + len(NO_HASH) :]


def without_defaults(bundle: OneFile) -> bytes:
    """Return the file with required inputs: ONNX Runtime Web refuses inputs with defaults, Node ignores them."""
    graph = graph_without(bundle.parts.graph, weights=PointInputs.of(bundle.family).widths)
    return sealed(bundle.parts.header + encode(MODEL_GRAPH, graph), bundle.manifest)


def hash_of(content: bytes, at: int) -> str:
    """Return the SHA-256 of a file in which the 64 characters from `at` on are replaced by `0`."""
    digest = hashlib.sha256(memoryview(content)[:at])
    digest.update(NO_HASH.encode())
    digest.update(memoryview(content)[at + 64 :])
    return digest.hexdigest()


def is_one_file(path: Path) -> bool:
    """Return whether a path is a file that is no zip, and so no bundle of the older kind."""
    try:
        with path.open("rb") as file:
            return file.read(2) != b"PK"
    except OSError:
        # Whoever opens it next says what is wrong.
        return False


def open_one_file(path: str | Path, *, variant: str | None = None) -> OneFile:
    """Read a bundle that is one ONNX file, and verify its hash, its operators and its metadata.

    Args:
        path: The file.
        variant: The precision whose operating points to return; None for that of the graph.

    Raises:
        RequestError: There is no file, or it has no such variant.
        WorkError: The file is damaged, or contains what a bundle must not.
    """
    return verified(Path(path), _read(Path(path)), variant=variant)


def verified(path: Path, content: bytes, *, variant: str | None = None) -> OneFile:
    """Verify the bytes of a file; see `open_one_file`."""
    where = str(path)
    parts = walk(content, where=where)
    if SHA256 not in parts.metadata:
        raise WorkError(f"{where} is an ONNX file without elfnet's metadata; make one with 'elfnet export RUN'")
    if parts.metadata[SHA256] != hash_of(content, parts.metadata_at[SHA256]):
        raise WorkError(
            f"{where} is damaged or was altered (its hash does not match); restore it from a copy, or export again"
        )
    manifest = FileManifest.of_properties(parts.metadata, where=where)
    chosen = manifest.precision if variant is None else variant
    if chosen not in manifest.variants:
        raise unknown_name(f"variant of {path}:", chosen, list(manifest.variants))
    family = read_family(
        manifest.variants[chosen].family,
        checkpoint_sha256=manifest.provenance.checkpoint_sha256,
        classes=len(manifest.class_names),
        exits=len(manifest.multiply_adds.stages),
        where=where,
    )
    _require_points_fit(manifest, family, where=where)
    return OneFile(path, content, manifest, parts, family)


def _require_points_fit(manifest: FileManifest, family: Family, *, where: str) -> None:
    """Refuse points in the metadata that are no inputs of the graph; clients without elfnet read them there.

    Raises:
        WorkError: A point misses an input, or has one of another width.
    """
    widths = PointInputs.of(family).widths
    for name, values in manifest.operating_points.items():
        if {key: len(value) for key, value in values.items()} != widths:
            raise WorkError(
                f"{where}: the metadata is not valid (operating_points.{name} does not fit the inputs "
                f"{', '.join(widths)}); export the run again"
            )


def _read(path: Path) -> bytes:
    try:
        if not path.exists():
            raise RequestError(f"there is no bundle {path}; 'elfnet export RUN --out {path}' makes one")
        if path.stat().st_size > MAX_BYTES:
            raise WorkError(f"{path} has more than 2 GB, which is no ONNX file; name a bundle")
        return path.read_bytes()
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror or error}") from error


def _json(content: Any) -> str:
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
