"""The schema of a bundle's manifest: files, preprocessing, costs, variants, measurements and provenance.

Everything except `measured` follows from the run alone, so that the same run gives the same bundle.
"""

import json
import unicodedata
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from elfnet.errors import WorkError
from elfnet.inference.preprocess import CHANNELS, FEATURE_ROWS, Preprocess
from elfnet.parsing import parse_json
from elfnet.run.json_file import Strict, content_sha256, first_error

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


FORMAT: Final = "elfnet-bundle"
FORMAT_VERSION: Final = 1
WEIGHTS = "weights.safetensors"


class PointParity(Strict):
    """Comparison of the exported graphs with torch at one operating point.

    Attributes:
        differ: Number of examples with another exit or another prediction.
        on_the_edge: Number of those that rounding can explain: in torch, their confidence is within 1e-4 of a
            threshold they were compared with, or their two best classes are within 1e-4 of each other.
    """

    differ: Count
    on_the_edge: Count


class Parity(Strict):
    """Comparison of the exported graphs with torch, on images of the calibration split.

    Attributes:
        split: Name of the split.
        images: Number of images.
        largest_logit: Largest absolute value of a logit; the scale for `largest_difference`.
        largest_difference: Largest absolute difference of logits, per exit.
        points: Comparison per operating point.
        engine_points: Points at which the engine ran the graphs; the others were computed from the graphs' logits.
    """

    split: str
    images: Count
    largest_logit: float
    largest_difference: tuple[float, ...]
    points: dict[str, PointParity]
    engine_points: tuple[str, ...]


class PeakMemory(Strict):
    """Peak memory of a process with only the base package that loads the bundle and classifies one batch.

    Attributes:
        batch: Images in the batch.
        bytes: Peak resident set size of the process; None if the system does not report it.
        before_loading: Peak resident set size before the bundle was loaded: Python and the imported packages.
    """

    batch: Count
    bytes: Count | None
    before_loading: Count | None


class AgainstFloat32(Strict):
    """Comparison of another precision with float32, on the whole calibration split and on the exporting machine.

    Attributes:
        images: Number of images.
        accuracy: Accuracy at full depth in this precision.
        accuracy_float32: Accuracy at full depth in float32.
        time_ratio: CPU time of all stages relative to float32 on the same backend, by batch size.
        backend: The backend that computed both.
    """

    images: Count
    accuracy: Share
    accuracy_float32: Share
    time_ratio: dict[str, float]
    backend: str

    @property
    def points_lost(self) -> float:
        """Loss of accuracy in percentage points."""
        return 100 * (self.accuracy_float32 - self.accuracy)


class Measured(Strict):
    """Measurements on the exporting machine.

    Attributes:
        accuracy: Accuracy per operating point at which the engine was run, on the images of the comparison.
        parity: Comparison with torch; only for the variant float32.
        against_float32: Comparison with float32; only for the other variants.
        peak_memory: Peak memory; None if it was not measured.
        versions: Versions of the packages involved.
    """

    accuracy: dict[str, Share]
    parity: Parity | None = None
    against_float32: AgainstFloat32 | None = None
    peak_memory: PeakMemory | None = None
    versions: dict[str, str]


def _printable(name: str) -> str:
    # Names are printed on terminals and in line-based formats; a control character would break both.
    if not name or any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise ValueError("a class name is empty or has control characters")
    return name


ClassName = Annotated[str, AfterValidator(_printable)]


class Preprocessing(Strict):
    """Settings of the preprocessing; see `Preprocess`.

    Attributes:
        resize: Centre crop or the whole image, then bilinear resize with antialiasing.
    """

    mode: Literal["L", "RGB", "features"]
    height: Annotated[int, Field(gt=0, le=16384)]
    width: Annotated[int, Field(gt=0, le=16384)]
    mean: tuple[float, ...]
    std: tuple[Positive, ...]
    resize: Literal["centre-bilinear", "squash-bilinear"] = "centre-bilinear"
    crop_share: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _check_channels(self) -> Self:
        if self.mode == FEATURE_ROWS:
            if not (self.height == self.width == 1 and len(self.mean) == len(self.std) > 0):
                raise ValueError("feature rows need height 1, width 1, and a mean and standard deviation per feature")
        elif not len(self.mean) == len(self.std) == CHANNELS[self.mode]:
            raise ValueError(f"mode {self.mode} needs {CHANNELS[self.mode]} means and standard deviations")
        return self

    def preprocess(self) -> Preprocess:
        """Return the callable with these settings."""
        return Preprocess(
            mode=self.mode,
            height=self.height,
            width=self.width,
            mean=self.mean,
            std=self.std,
            crop_share=self.crop_share,
            squash=self.resize == "squash-bilinear",
        )


class MultiplyAdds(Strict):
    """Multiply-adds per image, by stage and head.

    Attributes:
        stages: Multiply-adds per stage.
        heads: Multiply-adds per head.
        plain: Multiply-adds of the plain backbone: all stages and the last head; in a network with experts, all stages
            up to the first expert, and its head.
    """

    stages: tuple[Count, ...]
    heads: tuple[Count, ...]
    plain: Annotated[int, Field(gt=0)]

    @model_validator(mode="after")
    def _check_plain(self) -> Self:
        if not self.heads or len(self.stages) != len(self.heads):
            raise ValueError(f"there are {len(self.stages)} stages and {len(self.heads)} heads")
        if self.plain not in (sum(self.stages[: k + 1]) + head for k, head in enumerate(self.heads)):
            raise ValueError("plain is not the sum of the stages up to an exit and its head")
        return self

    @property
    def relative(self) -> tuple[float, ...]:
        """Cost up to and including each exit, with all heads before it, relative to the plain backbone."""
        return tuple(
            (sum(self.stages[: k + 1]) + sum(self.heads[: k + 1])) / self.plain for k in range(len(self.heads))
        )


class File(Strict):
    """Hash and size of one file of the bundle."""

    sha256: Sha256
    bytes: Count


class Provenance(Strict):
    """Origin of the network.

    Attributes:
        recipe: All settings of the run; of paths, only the last part.
        network: Signature of the network that the weights belong to, in one line.
        data_fingerprint: Hash of the data splits.
        checkpoint_sha256: Hash of the checkpoint's weights.
    """

    recipe: dict[str, Any]
    network: str
    data_fingerprint: Sha256
    checkpoint_sha256: Sha256


class Variant(Strict):
    """The network in one precision, with its own operating points.

    Attributes:
        precision: Precision of the computation. bfloat16 uses the float32 graphs, on a backend that supports it.
        graphs: Names of the graph files, in the order of the stages.
        family: The operating points, as `Family.to_dict` writes them.
        measured: Measurements on the exporting machine, if any.
    """

    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    graphs: tuple[str, ...]
    family: dict[str, Any]
    measured: Measured | None = None


class Manifest(Strict):
    """The content of `manifest.json`, without its two hashes; see `manifest_file`."""

    format: Literal["elfnet-bundle"] = FORMAT
    format_version: Literal[1] = FORMAT_VERSION
    elfnet_version: str
    class_names: tuple[ClassName, ...]
    preprocessing: Preprocessing
    multiply_adds: MultiplyAdds
    variants: dict[str, Variant]
    files: dict[str, File]
    size_bytes: Count
    provenance: Provenance

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if not self.class_names:
            raise ValueError("class_names is empty")
        if "float32" not in self.variants:
            raise ValueError("the variant float32 is missing")
        exits = len(self.multiply_adds.stages)
        for name, variant in self.variants.items():
            if len(variant.graphs) != exits:
                raise ValueError(f"variant {name} has {len(variant.graphs)} stages, multiply_adds has {exits}")
        graphs = {graph for variant in self.variants.values() for graph in variant.graphs}
        if {WEIGHTS, *graphs} != set(self.files):
            raise ValueError("files are not the weights and the graphs of every variant")
        if self.size_bytes != sum(file.bytes for file in self.files.values()):
            raise ValueError("size_bytes is not the sum over the files")
        return self


MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 2**20


def identity_of(manifest: Manifest) -> str:
    """Return the hash of everything in the manifest except measurements."""
    content = manifest.model_dump(mode="json")
    for variant in content["variants"].values():
        del variant["measured"]
    return content_sha256(content)


def read_manifest(text: bytes, *, where: str) -> Manifest:
    """Parse and check the content of `manifest.json`, its hash first.

    Args:
        text: The content of the file.
        where: Name of the bundle in error messages.

    Raises:
        WorkError: The text is not a manifest of this format version, or was altered.
    """
    try:
        content = parse_json(text)
    except ValueError as error:
        raise WorkError(f"{where}: {MANIFEST} is damaged ({error}); export the run again") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise WorkError(f"{where} is not an elfnet bundle; make one with 'elfnet export RUN'")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        way_out = "update elfnet" if newer else "export the run again"
        raise WorkError(f"{where} has bundle format version {version!r}, this elfnet reads {FORMAT_VERSION}; {way_out}")
    claimed, identity = content.pop("sha256", None), content.get("identity")
    if claimed != content_sha256(content):
        raise WorkError(f"{where}: {MANIFEST} was altered (its hash does not match); export the run again")
    content.pop("identity", None)
    try:
        manifest = Manifest.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise WorkError(f"{where}: {MANIFEST} is not valid ({first_error(error)}); export the run again") from error
    if identity != identity_of(manifest):
        raise WorkError(f"{where}: {MANIFEST} was altered (its identity does not match); export the run again")
    return manifest
