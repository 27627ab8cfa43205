"""The model card in the metadata of an exported file: what the model is and what its figures mean, in Markdown."""

from collections.abc import Sequence

from elfnet.calibrate.family import Family
from elfnet.inference.preprocess import Preprocess

MAX_POINTS = 12
"""Operating points in the table; all of them are in the metadata."""
MAX_NAMES = 20


def model_card(family: Family, class_names: Sequence[str], preprocess: Preprocess, default_point: str) -> str:
    """Return the card.

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
