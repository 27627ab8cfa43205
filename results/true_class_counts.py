"""The published class counts of ImageNet-LT and iNaturalist'18 through weights, margins and groups.

    python results/true_class_counts.py ImageNet_LT_train_class_counts.json iNaturalist18_train_class_counts.json

Each file is a JSON list, images per class in the order of the labels. For each, a list file with those counts is
written to a temporary folder and read back as `elfnet data describe` reads it, so that the figures come out of
the path that a training takes. Writes `results/true-class-counts/README.md` and `.json`.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elfnet import atomic
from elfnet.data.long_tail import FrequencyGroups
from elfnet.data.sources.lists import read_list
from elfnet.losses.ldam import ldam_margins
from elfnet.losses.weighting import class_weights

OUT = Path(__file__).parent / "true-class-counts"


def counts_as_listed(counts: list[int]) -> list[int]:
    """The counts of a list file that holds them, shuffled."""
    labels_N = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(0).shuffle(labels_N)
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "train.txt"
        listing.write_text("".join(f"{label:05}/{number:07}.jpg {label}\n" for number, label in enumerate(labels_N)))
        found = read_list(listing, Path(folder))
    return [int(count) for count in np.bincount(found.labels_N, minlength=len(counts))]


def through_the_criterion(counts: list[int]) -> dict[str, Any]:
    groups = FrequencyGroups()
    kinds = ("effective", "inverse", "inverse_sqrt")
    weights = {kind: class_weights(counts, kind, dtype=torch.float64) for kind in kinds}
    margins_C = ldam_margins(counts, max_margin=0.5, power=0.25)
    return {
        "classes": len(counts),
        "images": sum(counts),
        "largest": max(counts),
        "smallest": min(counts),
        "groups": dict(zip(("many", "medium", "few"), groups.sizes(counts), strict=True)),
        "group_rule": groups.rule,
        "weights": {
            kind: {"least": float(found.min()), "most": float(found.max()), "mean": float(found.mean())}
            for kind, found in weights.items()
        },
        "margins": {"least": float(margins_C.min()), "most": float(margins_C.max()), "mean": float(margins_C.mean())},
    }


def page(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "<!-- Written by results/true_class_counts.py; do not edit. -->",
        "# True class counts of ImageNet-LT and iNaturalist'18",
        "",
        "Read from a list file with the published counts. Groups: " + next(iter(found.values()))["group_rule"] + ".",
        "Weights sum to the number of classes (effective number: beta 0.9999); margins are LDAM's, the largest 0.5.",
        "",
        "| data | classes | images | a class | ratio | many / medium / few | effective weights | inverse"
        " | inverse square root | margins |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        spans = [row["weights"][kind] for kind in ("effective", "inverse", "inverse_sqrt")] + [row["margins"]]
        cells = [name, f"{row['classes']:,}", f"{row['images']:,}", f"{row['smallest']} to {row['largest']:,}"]
        cells += [f"{row['largest'] / row['smallest']:.0f}", " / ".join(str(size) for size in row["groups"].values())]
        cells += [f"{span['least']:.3g} to {span['most']:.3g}" for span in spans]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Published class counts through weights, margins and groups.")
    parser.add_argument("files", nargs="+", type=Path, help="JSON lists of images per class")
    found: dict[str, dict[str, Any]] = {}
    for file in parser.parse_args().files:
        counts = json.loads(file.read_text())
        listed = counts_as_listed(counts)
        assert listed == counts, f"{file} came back changed"
        found[file.stem.removesuffix("_train_class_counts")] = through_the_criterion(listed)
    OUT.mkdir(exist_ok=True)
    atomic.write_text(OUT / "true-class-counts.json", json.dumps(found, indent=1) + "\n")
    atomic.write_text(OUT / "README.md", page(found))


if __name__ == "__main__":
    main()
