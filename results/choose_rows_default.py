"""Compare methods for feature rows with a perceptron written by hand, on rows that no measured test split has.

    python results/choose_rows_default.py WORK --directory DATA

Four tables are made long-tailed: scikit-learn's digits without the test rows of `measure_defaults.py`, the training
images of CIFAR-10 averaged to 8 x 8 pixels, and two generated tables. The methods are trained on up to 1,600 rows and
compared on others of the same table, up to 400 per class. A record that is there is not run again. Writes
`results/rows-default/*.json` and `README.md`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure_defaults import row_splits
from numpy.typing import NDArray
from sklearn.datasets import make_classification

from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.data.build import load_source
from elfnet.data.types import LabelledImages
from elfnet.recipe.load import load_recipe
from elfnet.train import Silent, train_recipe

HERE = Path(__file__).parent / "rows-default"
BY_HAND = Path(__file__).parent.parent / "benchmarks" / "hand_written_cnn.py"
METHODS = ("joint-quick", "joint-ce-drw", "elf-balanced-softmax", "elf-ce-drw")
SEEDS = (0, 1, 2)
POINTS = ("full", "budget=0.5")
HELD_OUT_PER_CLASS = 400
Table = tuple[NDArray[np.float32], NDArray[np.int64]]


def tables(directory: str) -> Iterator[tuple[str, Table, int, float]]:
    """Name, features and labels, rows of the largest class, and imbalance ratio."""
    images = load_source("digits").train
    assert isinstance(images, LabelledImages)
    test = {one.tobytes() for one in row_splits().test.images_NHWC}
    kept = images.take(np.flatnonzero([one.tobytes() not in test for one in images.images_NHWC]))
    pixels = kept.images_NHWC[:, ::4, ::4].reshape(len(kept), -1)
    yield "digits", (pixels.astype(np.float32), kept.labels_N), 80, 20
    colour = load_source("cifar10", Path(directory)).train
    assert isinstance(colour, LabelledImages)
    small = colour.images_NHWC[:20_000].reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4)).reshape(20_000, -1)
    yield "pixels", (small.astype(np.float32), colour.labels_N[:20_000]), 100, 25
    for name, shape, largest in (
        ("generated", {"n_features": 20, "n_informative": 10, "n_classes": 5, "class_sep": 1.5}, 150),
        ("larger", {"n_features": 30, "n_informative": 12, "n_classes": 8}, 500),
    ):
        features_NF, labels_N = make_classification(12_000, **shape, n_clusters_per_class=1, random_state=0)
        yield name, (features_NF.astype(np.float32), labels_N.astype(np.int64)), largest, 25


def write_table(table: Table, largest: int, ratio: float, place: Path, seed: int) -> None:
    """Draw long-tailed training rows, and others to compare on."""
    features_NF, labels_N = table
    rng, classes = np.random.default_rng(seed), int(labels_N.max()) + 1
    chosen: dict[str, list[NDArray[np.int64]]] = {"train": [], "test": []}
    for label in range(classes):
        rows = rng.permutation(np.flatnonzero(labels_N == label))
        count = max(3, round(largest * ratio ** (-label / (classes - 1))))
        chosen["train"].append(rows[:count])
        chosen["test"].append(rows[count : count + HELD_OUT_PER_CLASS])
    place.mkdir(parents=True, exist_ok=True)
    for split, parts in chosen.items():
        rows = np.concatenate(parts)
        np.savez(place / f"{split}.npz", X=features_NF[rows], y=labels_N[rows])


def measure(place: Path, method: str, seed: int) -> dict[str, float]:
    """Balanced accuracy in percent on the other rows, by operating point."""
    settings = {"data.train": str(place / "train.npz"), "data.test": str(place / "test.npz"), "train.seed": seed}
    settings |= {"data.cross_fitting": 0, "train.threads": 1, "train.compile": "off", "train.precision": "float32"}
    run = train_recipe(load_recipe(f"features/{method}", settings), place / method, observer=Silent(), overwrite=True)
    points = measure_run(run, calibrate_run(run)).points
    return {name: round(100 * points[name].balanced_accuracy, 2) for name in POINTS}


def measure_by_hand(place: Path, seed: int) -> dict[str, float]:
    """Balanced accuracy in percent of the perceptron that is written by hand."""
    command = [sys.executable, str(BY_HAND), str(place), "--seed", str(seed)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {"full": float(json.loads(out)["balanced_accuracy"]["test"])}


def write_page() -> None:
    """Write the means over seeds."""
    records = [json.loads(file.read_text()) for file in sorted(HERE.glob("*.json"))]
    heads = ("by hand", *METHODS)
    lines = [
        "# The default method for feature rows",
        "",
        "Balanced accuracy in %, mean over seeds: full depth / half the cost. The rows are neither trained on nor",
        "in the test split of any table of results. Written by `python results/choose_rows_default.py`.",
        "",
        f"| table | training rows | seeds | {' | '.join(heads)} |",
        "|---" * (len(heads) + 3) + "|",
    ]
    for name in dict.fromkeys(one["table"] for one in records):
        mine = [one for one in records if one["table"] == name]
        cells = []
        for method in heads:
            found = [one["accuracy"][method] for one in mine]
            means = [np.mean([run[point] for run in found]) for point in POINTS if point in found[0]]
            cells.append(" / ".join(f"{mean:.1f}" for mean in means))
        lines.append(f"| {name} | {mine[0]['rows']} | {len(mine)} | {' | '.join(cells)} |")
    (HERE / "README.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare methods for feature rows.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--directory", default="", help="where the official files of CIFAR-10 are")
    args = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    for seed in SEEDS:
        for name, table, largest, ratio in tables(args.directory):
            file = HERE / f"{name}-{seed}.json"
            if file.is_file():
                continue
            place = args.work / f"{name}-{seed}"
            write_table(table, largest, ratio, place, seed)
            with np.load(place / "train.npz") as rows:
                count = len(rows["y"])
            accuracy = {"by hand": measure_by_hand(place, seed)}
            accuracy |= {method: measure(place, method, seed) for method in METHODS}
            file.write_text(json.dumps({"table": name, "seed": seed, "rows": count, "accuracy": accuracy}) + "\n")
            write_page()


if __name__ == "__main__":
    main()
