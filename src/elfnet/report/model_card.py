"""The model card of a run, MODEL_CARD.md: what the model is, what it was trained on, and how good it is."""

# Shapes: C classes

from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elfnet import atomic
from elfnet.calibrate.held_out import NORMAL_95
from elfnet.report.figures.confusion import confused_pairs, confusion_of
from elfnet.report.record import RunRecord, read_run
from elfnet.run.directory import RunDirectory
from elfnet.run.results import Metrics, same_points

MAX_CONFUSIONS, MAX_CLASSES = 5, 30


def write_model_card(run: RunDirectory) -> Path:
    """Write the model card of a calibrated run; returns its path."""
    path = run.root / "MODEL_CARD.md"
    atomic.write_text(path, model_card(read_run(run)))
    return path


def model_card(record: RunRecord) -> str:
    """The text of the model card, in Markdown."""
    parts = [
        f"# {record.name}",
        f"An image classifier for {len(record.info.data.class_names)} classes: {record.network}, trained with "
        f"{record.method}, with {record.exits} exits.",
        "## Data",
        _data(record),
        "## Accuracy",
        _accuracy(record),
        *(["## Most confused classes", confused] if (confused := _confused(record)) else []),
        "## Limits",
        _limits(record),
    ]
    return "\n\n".join(parts) + "\n"


def _data(record: RunRecord) -> str:
    info = record.info.data
    counts_C = np.array(info.class_counts)
    lines = [
        f"{info.train:,} training, {info.calibration:,} calibration and {info.test:,} test examples; "
        f"{int(counts_C.max()):,} to {int(counts_C.min()):,} training examples per class."
        + (f" Thresholds were chosen on the {record.family.chosen_on}." if not info.calibration else "")
    ]
    if len(info.class_names) <= MAX_CLASSES:
        lines += ["", "| class | training examples |", "|---|---|"]
        lines += [
            f"| {_cell(name)} | {count:,} |" for name, count in zip(info.class_names, counts_C.tolist(), strict=True)
        ]
    return "\n".join(lines)


def _accuracy(record: RunRecord) -> str:
    lines = [
        f"On the {record.results.split} split (n = {record.results.n:,}), which chose neither weights nor thresholds. "
        "Intervals are of 95 %, by the normal approximation for the given number of test examples.",
        "",
        f"| operating point | balanced accuracy, % | all, % | mean cost |{' ms per image |' if record.times else ''}",
        f"|---|---|---|---|{'---|' if record.times else ''}",
    ]
    leading = record.leading_points()
    for name, same in same_points({name: record.results.points[name] for name in leading}).items():
        meaning = "; ".join(f"{one}: {leading[one]}" for one in same)
        found, error = record.at(name), balanced_error(record.at(name), confusion_of(record, name))
        taken = record.milliseconds(name)
        lines.append(
            f"| {meaning} | {100 * found.balanced_accuracy:.1f} ± {100 * error:.1f} | "
            f"{100 * found.accuracy:.1f} | {found.mean_cost:.2f} |{'' if taken is None else f' {taken:#.3g} |'}"
        )
    units = " ".join(note for note in (record.cost_note, record.time_note, record.mix_note) if note)
    return "\n".join([*lines, "", units, "", *(f"- {note}" for note in record.family.notes)])


def balanced_error(metrics: Metrics, confusion_CC: NDArray[np.int64] | None) -> float:
    """Half the width of the 95 % interval of the balanced accuracy; without a confusion matrix by all examples.

    Shares of 0 and 1 count as half an example away from that, so that few examples never give certainty.
    """
    if confusion_CC is None:
        accuracy = min(max(metrics.accuracy, 0.5 / metrics.n), 1 - 0.5 / metrics.n)
        return NORMAL_95 * sqrt(accuracy * (1 - accuracy) / metrics.n)
    size_C = confusion_CC.sum(axis=1)
    right_C, size_C = np.diag(confusion_CC)[size_C > 0], size_C[size_C > 0]
    share_C = np.clip(right_C / size_C, 0.5 / size_C, 1 - 0.5 / size_C)
    return float(NORMAL_95 * sqrt((share_C * (1 - share_C) / size_C).sum()) / len(size_C))


def _confused(record: RunRecord) -> str:
    confusion_CC = confusion_of(record)
    if confusion_CC is None:
        return ""
    names = record.info.data.class_names
    return "\n".join(
        f"- {_cell(names[pair.label])} taken for {_cell(names[pair.answer])}: {pair.count} of {pair.of}"
        for pair in confused_pairs(confusion_CC, MAX_CONFUSIONS)
    )


def _limits(record: RunRecord) -> str:
    lines = [
        "- It answers with one of its classes, whatever the image shows.",
        "- The figures hold for images like those of the test split; another mix of classes changes them.",
    ]
    rare = [
        name
        for name, count in zip(record.info.data.class_names, record.info.data.class_counts, strict=True)
        if count < 20
    ]
    if rare:
        more = " ..." if len(rare) > MAX_CLASSES else ""
        named = ", ".join(map(_cell, rare[:MAX_CLASSES]))
        lines.append(f"- Fewer than 20 training examples: {named}{more}.")
    if record.info.weights is not None:
        licence = record.recipe.model.weights_licence or "not stated"
        lines.append(
            f"- It started from other weights: {_cell(Path(record.info.weights.file).name)} (sha256 "
            f"{record.info.weights.sha256[:12]}), licence: {_cell(licence)}. Their limits are this model's, too."
        )
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text that cannot end a cell of a Markdown table or start markup."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
