"""The content of an exported file: the graph that stops early, and its metadata with the model card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from elfnet.calibrate.operating_point import most_accurate
from elfnet.calibrate.point_family import Family
from elfnet.export.assemble import ImageInput, assemble
from elfnet.inference.bundle.manifest import MultiplyAdds, Preprocessing, Provenance
from elfnet.inference.bundle.one_file import FileManifest, FileVariant, sealed
from elfnet.inference.graph_inputs import PointInputs
from elfnet.inference.preprocess import Preprocess
from elfnet.models.flops import count_cost
from elfnet.models.staged import StagedNetwork
from elfnet.version import __version__

PACKAGES = ("torch", "onnx", "onnxruntime", "numpy")
"""Packages whose versions a file records."""
MAX_POINTS = 12
"""Operating points in the table; all of them are in the metadata."""
MAX_NAMES = 20
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class FileContent:
    """Makes the content of files from the graphs of one network.

    Attributes:
        network: The network, whose multiply-adds are counted.
        class_names: Names by class index.
        preprocess: The preprocessing.
        provenance: Origin of the network.
        image_input: What the input holds, see `assemble`.
        default_point: The operating point for clients that give none; None for `default_point_of`.
        required_inputs: Write the inputs without defaults.
    """

    network: StagedNetwork
    class_names: tuple[str, ...]
    preprocess: Preprocess
    provenance: Provenance
    image_input: ImageInput
    default_point: str | None = None
    required_inputs: bool = False

    def sealed(self, graphs: Sequence[bytes], family: Family, variants: Mapping[str, FileVariant]) -> bytes:
        """Return the bytes of a file; the first variant is that of the graphs."""
        preprocess, default = self.preprocess, self.default_point or default_point_of(family)
        family.point(default)
        inputs = PointInputs.of(family)
        model = assemble(
            graphs,
            family,
            image_input=self.image_input,
            preprocess=preprocess,
            default_point=None if self.required_inputs else default,
        )
        height, width, channels = preprocess.shape
        cost = count_cost(self.network, (channels, height, width))
        manifest = FileManifest(
            elfnet_version=__version__,
            precision=next(iter(variants)),  # type: ignore[arg-type]  # checked by the schema
            image_input=self.image_input,
            class_names=self.class_names,
            default_point=default,
            operating_points={
                point.name: {name: tuple(value[0].tolist()) for name, value in inputs.values(point.policy).items()}
                for point in family.points
            },
            variants=dict(variants),
            preprocessing=Preprocessing(
                mode=preprocess.mode,  # type: ignore[arg-type]  # checked by the schema
                height=height,
                width=width,
                mean=preprocess.mean,
                std=preprocess.std,
                resize="squash-bilinear" if preprocess.squash else "centre-bilinear",
                crop_share=preprocess.crop_share,
            ),
            multiply_adds=MultiplyAdds(stages=cost.stages, heads=cost.heads, plain=cost.plain),
            provenance=self.provenance,
            model_card=model_card(family, self.class_names, preprocess, default),
        )
        return sealed(model.SerializeToString(deterministic=True), manifest)


def default_point_of(family: Family) -> str:
    """Return the point for clients that give none: `accurate`, or else the most accurate with early exits."""
    # Shares of weighted examples are sums, which miss 1 by their last bits.
    early = [point for point in family.points if point.expected.exit_share[-1] < 1.0 - ROUNDING]
    if not early:
        return family.points[0].name
    return next((point.name for point in early if point.name == "accurate"), most_accurate(early).name)


def package_versions() -> dict[str, str]:
    """Return the versions of the packages involved."""
    return {name: version(name) for name in PACKAGES}


def model_card(family: Family, class_names: Sequence[str], preprocess: Preprocess, default_point: str) -> str:
    """Return the model card, in Markdown: what the model is and what its figures mean.

    Args:
        family: The operating points.
        class_names: Names by class index.
        preprocess: The preprocessing.
        default_point: The point for clients that give none.
    """
    height, width, channels = preprocess.shape
    kind = "uint8 images of {} x {} pixels, {} channel{}".format(height, width, channels, "s" if channels > 1 else "")
    if preprocess.reads_rows:
        kind = f"float32 rows of {channels} features"
    names = ", ".join(class_names[:MAX_NAMES]) + (", ..." if len(class_names) > MAX_NAMES else "")
    shown = [point for point in family.points if point.rule != "line search" or point.name == default_point]
    rows = [
        f"| {point.name} | {100 * point.expected.accuracy:.1f} | {100 * point.expected.balanced_accuracy:.1f} | "
        f"{point.expected.mean_cost:.3f} |"
        for point in shown[:MAX_POINTS]
    ]
    return "\n".join(
        [
            "# Classifier with early exits" if preprocess.reads_rows else "# Image classifier with early exits",
            "",
            f"- Classes: {len(class_names)} ({names})",
            f"- Input: {kind}",
            f"- Exits: {family.exits}. An example stops at the first exit whose confidence exceeds its threshold.",
            f"- Default operating point: {default_point}",
            f"- Cost: {family.cost_unit}",
            "",
            "| operating point | accuracy % | balanced accuracy % | mean cost |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Figures are of the {family.chosen_on}, on which the thresholds were chosen. "
            "They hold for examples like these. Confidence is no guarantee on others.",
            "The hash in the metadata detects damage. It does not prove who wrote the file.",
            "",
        ]
    )
