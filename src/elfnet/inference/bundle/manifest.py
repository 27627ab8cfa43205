"""What a bundle holds, how to feed it, what it costs, where it comes from.

Everything but `measured` follows from the run alone, so that the same run gives the same bundle.
"""

import unicodedata
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from elfnet.inference.preprocess import CHANNELS, RESIZE_RULE, Preprocess

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class PointParity(Part):
    """One operating point, torch against the exported graphs.

    Attributes:
        differ: examples with another exit or another answer.
        on_the_edge: those of them whose confidence in torch lies within 1e-4 of a threshold that decided, or whose
            two best classes are as close.
    """

    differ: Count
    on_the_edge: Count


class Parity(Part):
    """The exported graphs against torch, on images of the calibration split.

    Attributes:
        images: how many.
        largest_logit: the largest logit in absolute value, to compare differences with.
        largest_difference: of the logits of each exit.
        points: by operating point.
        engine_points: those at which the engine was run on the graphs; the others follow from the graphs' logits.
    """

    split: str
    images: Count
    largest_logit: float
    largest_difference: tuple[float, ...]
    points: dict[str, PointParity]
    engine_points: tuple[str, ...]


class PeakMemory(Part):
    """Of a process with the base package alone that loads the bundle and classifies one batch.

    Attributes:
        bytes: the process's largest resident size; None where the system does not tell.
        before_loading: the same before the bundle was loaded: Python and the imported packages.
    """

    batch: Count
    bytes: Count | None
    before_loading: Count | None


class AgainstFloat32(Part):
    """Another precision against float32, on the whole calibration split and on the exporting machine.

    Attributes:
        images: how many.
        accuracy, accuracy_float32: at full depth.
        time_ratio: processor time of all stages relative to float32 on the same backend, by batch size.
        backend: what computed both.
    """

    images: Count
    accuracy: Share
    accuracy_float32: Share
    time_ratio: dict[str, float]
    backend: str

    @property
    def points_lost(self) -> float:
        return 100 * (self.accuracy_float32 - self.accuracy)


class Measured(Part):
    """What was measured on the exporting machine.

    Attributes:
        accuracy: of the points at which the engine was run, on the images of the parity check.
        parity: of the float32 variant with torch; None for others, which give other answers.
        against_float32: of the other variants.
    """

    accuracy: dict[str, Share]
    parity: Parity | None = None
    against_float32: AgainstFloat32 | None = None
    peak_memory: PeakMemory | None = None
    versions: dict[str, str]


FORMAT: Final = "elfnet-bundle"
FORMAT_VERSION: Final = 1
WEIGHTS = "weights.safetensors"


def graph_name(variant: str, stage: int) -> str:
    """Where the graph of a stage (from 1) lies; float32 is the one that every bundle has."""
    return f"stages/{stage}.onnx" if variant == "float32" else f"stages/{variant}/{stage}.onnx"


def _printable(name: str) -> str:
    # Names are printed on terminals and into lines; a control character would break both.
    if not name or any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise ValueError("a class name is empty or has control characters")
    return name


ClassName = Annotated[str, AfterValidator(_printable)]


class Preprocessing(Part):
    """From an image to the input of the first stage; see `Preprocess`."""

    mode: Literal["L", "RGB"]
    height: Annotated[int, Field(gt=0, le=16384)]
    width: Annotated[int, Field(gt=0, le=16384)]
    mean: tuple[float, ...]
    std: tuple[Positive, ...]
    resize: Literal["centre-bilinear"] = RESIZE_RULE
    crop_share: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _one_number_a_channel(self) -> Self:
        if not len(self.mean) == len(self.std) == CHANNELS[self.mode]:
            raise ValueError(f"mode {self.mode} needs {CHANNELS[self.mode]} means and standard deviations")
        return self

    def preprocess(self) -> Preprocess:
        return Preprocess(
            mode=self.mode,
            height=self.height,
            width=self.width,
            mean=self.mean,
            std=self.std,
            crop_share=self.crop_share,
        )


class MultiplyAdds(Part):
    """Of one image: each stage, each head, and the plain backbone.

    The plain backbone is all stages and the last head; in a network with experts, all up to the first expert's.
    """

    stages: tuple[Count, ...]
    heads: tuple[Count, ...]
    plain: Annotated[int, Field(gt=0)]

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if not self.heads or len(self.stages) != len(self.heads):
            raise ValueError(f"there are {len(self.stages)} stages and {len(self.heads)} heads")
        if self.plain not in (sum(self.stages[: k + 1]) + head for k, head in enumerate(self.heads)):
            raise ValueError("plain is not the sum of the stages up to an exit and its head")
        return self

    @property
    def relative(self) -> tuple[float, ...]:
        """Up to and including each exit, every head on the way included, relative to the plain backbone."""
        return tuple(
            (sum(self.stages[: k + 1]) + sum(self.heads[: k + 1])) / self.plain for k in range(len(self.heads))
        )


class File(Part):
    sha256: Sha256
    bytes: Count


class Provenance(Part):
    """Where the network comes from.

    Attributes:
        recipe: every setting of the run but the data's directory.
        network: what the weights are for, in one line.
    """

    recipe: dict[str, Any]
    network: str
    data_fingerprint: Sha256
    checkpoint_sha256: Sha256


class Variant(Part):
    """The network in one precision, with operating points fitted for it.

    Attributes:
        precision: what the stages are computed in. bfloat16 uses the float32 graphs, on an engine that can.
        graphs: files of the stages, in order.
        family: as `Family.to_dict` gives it.
    """

    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    graphs: tuple[str, ...]
    family: dict[str, Any]
    measured: Measured | None = None


class Manifest(Part):
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
    def _agrees_with_itself(self) -> Self:
        if not self.class_names:
            raise ValueError("there is no class")
        if "float32" not in self.variants:
            raise ValueError("there is no variant float32")
        exits = len(self.multiply_adds.stages)
        for name, variant in self.variants.items():
            if len(variant.graphs) != exits:
                raise ValueError(f"variant {name} has {len(variant.graphs)} stages, the costs are of {exits}")
        graphs = {graph for variant in self.variants.values() for graph in variant.graphs}
        if {WEIGHTS, *graphs} != set(self.files):
            raise ValueError("files are not the weights and the graphs of every variant")
        if self.size_bytes != sum(file.bytes for file in self.files.values()):
            raise ValueError("size_bytes is not the sum over the files")
        return self
