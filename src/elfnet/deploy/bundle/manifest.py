"""What a bundle holds, how to feed it, what it costs, where it comes from.

Everything but `measured` follows from the run alone, so that the same run gives the same bundle.
"""

import unicodedata
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from elfnet.deploy.bundle.measured import Measured
from elfnet.deploy.bundle.part import Count, Part, Positive, Sha256
from elfnet.deploy.images.preprocess import CHANNELS, RESIZE_RULE, Preprocess

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
