"""What the splits look like: as a dictionary for programs, as bars in a terminal for people."""

# Shapes: C classes

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from elfnet.data.count_chart import count_chart
from elfnet.data.examples import Ints
from elfnet.data.groups import GROUP_NAMES, FrequencyGroups
from elfnet.data.splits import Splits


def describe(splits: Splits, groups: FrequencyGroups) -> dict[str, Any]:
    """Counts, groups and the imbalance ratio as plain data."""
    counts_C = splits.class_counts_C
    group_C = groups.of_classes(counts_C)
    return {
        "source": splits.source_name,
        "fingerprint": splits.fingerprint,
        "classes": len(splits.class_names),
        "image_shape": list(splits.train.example_shape),
        "examples": {
            "train": len(splits.train),
            "calibration": len(splits.calibration),
            "test": len(splits.test),
        },
        **count_facts(counts_C, groups),
        "missing_from_calibration": list(splits.missing_from_calibration),
        "per_class": [
            {
                "label": label,
                "name": name,
                "group": GROUP_NAMES[group_C[label]],
                "train": int(counts_C[label]),
                "calibration": int(splits.calibration_counts_C[label]),
                "test": int(splits.test_counts_C[label]),
            }
            for label, name in enumerate(splits.class_names)
        ],
    }


def render(splits: Splits, groups: FrequencyGroups) -> RenderableType:
    """The same for a terminal: a summary, then one bar a class, or a curve over the ranks where classes are many."""
    facts = describe(splits, groups)
    examples = facts["examples"]
    lines = [
        f"{facts['source']}: {facts['classes']} classes, {' x '.join(map(str, facts['image_shape']))} images",
        f"examples: {examples['train']:,} train, {examples['calibration']:,} calibration, {examples['test']:,} test",
        *count_lines(facts),
    ]
    if missing := splits.missing_from_calibration:
        shown = ", ".join(str(label) for label in missing[:10]) + (" ..." if len(missing) > 10 else "")
        lines.append(f"without calibration examples: {len(missing)} classes ({shown})")
    chart = count_chart(splits.class_names, splits.class_counts_C, groups)
    # Text and not str: a class may be called "[bold]", and nothing of it is markup here.
    return Group(Text("\n".join(lines)), Text(""), chart)


def count_facts(counts_C: Ints, groups: FrequencyGroups) -> dict[str, Any]:
    """What follows from the training counts alone."""
    group_C = groups.of_classes(counts_C)
    return {
        "largest_class": int(counts_C.max()),
        "smallest_class": int(counts_C.min()),
        "imbalance_ratio": float(counts_C.max() / counts_C.min()),
        "group_rule": groups.rule,
        "groups": {
            name: {"classes": int((group_C == index).sum()), "examples": int(counts_C[group_C == index].sum())}
            for index, name in enumerate(GROUP_NAMES)
        },
    }


def count_lines(facts: dict[str, Any]) -> list[str]:
    """The same in words."""
    return [
        f"imbalance ratio: {facts['imbalance_ratio']:.4g}  "
        f"(largest class {facts['largest_class']:,}, smallest {facts['smallest_class']:,})",
        "groups: "
        + ", ".join(f"{name} {_dash_if_empty(facts['groups'][name])}" for name in GROUP_NAMES)
        + f"  ({facts['group_rule']} training examples)",
    ]


def _dash_if_empty(group: dict[str, int]) -> str:
    return f"{group['classes']} classes / {group['examples']:,} examples" if group["classes"] else "-"
