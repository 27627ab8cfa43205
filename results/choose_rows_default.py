"""Choose the default method for feature rows without a test split: cross-fitted accuracy on training rows alone.

    python results/choose_rows_default.py WORK

Three tables of scikit-learn and one generated table are made long-tailed (ratio 25, at least 6 rows per class). For
every table, method and seed, three networks answer the rows that they were not trained on. Writes
`results/rows-default/table.json` and `README.md`.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification

from elfnet.calibrate.run import calibrate_run
from elfnet.recipe.load import load_recipe
from elfnet.train import Silent, train_recipe

HERE = Path(__file__).parent / "rows-default"
MIXUP = "joint-quick, mixup"
METHODS = (MIXUP, "joint-quick", "joint-ce-drw", "elf-ce-drw", "elf-balanced-softmax")
SEEDS = (0, 1)
RATIO, SMALLEST = 25, 6
POINTS = ("full", "budget=0.5")


def tables() -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Features and labels by name."""
    found = {name: load(return_X_y=True) for name, load in (("digits", load_digits), ("wine", load_wine))}
    found["breast cancer"] = load_breast_cancer(return_X_y=True)
    shape = {"n_samples": 4000, "n_features": 30, "n_informative": 12, "n_classes": 8, "n_clusters_per_class": 2}
    return {**found, "generated": make_classification(**shape, random_state=0)}


def write_long_tailed(features_NF: NDArray[np.float64], labels_N: NDArray[np.int64], file: Path) -> None:
    """Keep fewer rows of each later class, and write them."""
    rng, classes = np.random.default_rng(0), int(labels_N.max()) + 1
    kept = []
    for label in range(classes):
        rows = rng.permutation(np.flatnonzero(labels_N == label))
        count = max(SMALLEST, round(len(rows) * RATIO ** (-label / (classes - 1))))
        kept.append(rows[:count])
    rows = np.concatenate(kept)
    np.savez(file, X=features_NF[rows].astype(np.float32), y=labels_N[rows])


def measure(file: Path, method: str, seed: int, out: Path) -> dict[str, float]:
    """Cross-fitted balanced accuracy in percent by operating point."""
    settings: dict[str, object] = {"data.train": str(file), "data.cross_fitting": 3}
    settings |= {"train.seed": seed, "train.threads": 1, "train.compile": "off", "train.precision": "float32"}
    if method == MIXUP:
        method, settings["train.mix"] = "joint-quick", "mixup"
    recipe = load_recipe(f"features/{method}", settings)
    family = calibrate_run(train_recipe(recipe, out, observer=Silent()))
    return {name: 100 * family.point(name).expected.balanced_accuracy for name in POINTS}


def main(work: Path) -> None:
    """Measure every table, method and seed, and write the outcome."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for name, (features_NF, labels_N) in tables().items():
        place = work / name.replace(" ", "-")
        place.mkdir(parents=True)
        write_long_tailed(features_NF, labels_N, place / "rows.npz")
        found[name] = {
            method: [measure(place / "rows.npz", method, seed, place / f"{method}-{seed}") for seed in SEEDS]
            for method in METHODS
        }
    HERE.mkdir(exist_ok=True)
    (HERE / "table.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = [
        "# The default method for feature rows",
        "",
        "Cross-fitted balanced accuracy in % on training rows, mean of two seeds: full depth / half the cost.",
        "Written by `python results/choose_rows_default.py WORK`; no test row was looked at.",
        "",
        f"| table | {' | '.join(f'`{method}`' for method in METHODS)} |",
        "|---" * (len(METHODS) + 1) + "|",
    ]
    means = {
        name: {m: [np.mean([run[p] for run in runs]) for p in POINTS] for m, runs in by.items()}
        for name, by in found.items()
    }
    for name, by in {**means, "mean": {m: np.mean([means[n][m] for n in means], axis=0) for m in METHODS}}.items():
        lines.append(f"| {name} | {' | '.join(' / '.join(f'{value:.1f}' for value in by[m]) for m in METHODS)} |")
    (HERE / "README.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
