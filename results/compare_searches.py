"""What thresholds chosen by counted and by expected accuracy give on unseen images, from few calibration images.

    python results/compare_searches.py

The networks of `models/` compute the logits of the 2,000 calibration images of CIFAR-10-LT and CIFAR-100-LT, which none
of them was trained on. Some of the images are drawn, balanced or long-tailed, thresholds are chosen on them, and the
other images are measured. The test split is not used. Needs the CIFAR files (`elfnet data ls`) and takes about two
minutes. Writes `results/searches/README.md` and `record.json`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray

from elfnet import atomic, load_recipe
from elfnet.calibrate.calibration_table import take_rows
from elfnet.calibrate.class_mix import weighted_to
from elfnet.calibrate.confidence_scale import expected_correct
from elfnet.calibrate.held_out import losses_to_choose_by
from elfnet.calibrate.threshold_search import AboveFloor, Goal, ThresholdSearch, WithinBudget
from elfnet.data.build import load_splits
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, replay
from elfnet.exits.policy import NEVER
from elfnet.inference.bundle.one_file import open_one_file

HERE = Path(__file__).parent
NETWORKS = {"cifar10-lt": "elf-strong", "cifar100-lt": "joint-strong"}
BUDGETS = (0.4, 0.5, 0.7, 0.9)
DRAWS = 10
CELLS = 2**15
LOST = 0.01
JUDGED = "within-1, judged"
# Largest and smallest number of calibration images per class.
SPLITS = {
    "cifar10-lt": [(40, 2), (120, 6), (20, 20), (120, 120)],
    "cifar100-lt": [(12, 2), (12, 12)],
}


def calibration_table(name: str) -> ExitTable:
    """The exit table of the calibration split, computed by the exported network with one exit forced at a time."""
    splits = load_splits(load_recipe(f"{name}/{NETWORKS[name]}", {"data.ratio": 100}).data)
    images: Any = splits.calibration
    file = HERE.parent / "models" / f"{name}.onnx"
    session = onnxruntime.InferenceSession(str(file))
    work = open_one_file(file).manifest.multiply_adds
    head_cost_E = np.array(work.heads) / work.plain
    logits = []
    for k in range(len(head_cost_E)):
        thresholds = np.full((1, len(head_cost_E) - 1), NEVER, dtype=np.float32)
        thresholds[0, k:] = 0.0
        probabilities = []
        for start in range(0, len(images.labels_N), 100):
            batch = np.ascontiguousarray(images.images_NHWC[start : start + 100])
            found = session.run(["probabilities", "exit", "cost"], {"images": batch, "thresholds": thresholds})
            assert (found[1] == k + 1).all()
            probabilities.append(found[0])
        logits.append(np.log(np.maximum(np.concatenate(probabilities), 1e-12)))
    return ExitTable(
        logits_NEC=np.stack(logits, axis=1).astype(np.float32),
        labels_N=images.labels_N,
        cost_E=np.cumsum(np.array(work.stages) / work.plain + head_cost_E),
        head_cost_E=head_cost_E,
        plain_multiply_adds=work.plain,
        class_counts_C=np.bincount(splits.train.labels_N),
        class_names=tuple(splits.class_names),
        split="calibration",
        checkpoint_sha256="0" * 64,
        confidence_scale=1.0,
        many_above=100,
        few_below=20,
    )


def draw(table: ExitTable, largest: int, smallest: int, seed: int) -> tuple[ExitTable, ExitTable]:
    """Calibration images with an exponential profile from `largest` to `smallest` per class, and all other images."""
    share_C = np.arange(table.classes) / (table.classes - 1)
    size_C = np.rint(largest * (smallest / largest) ** share_C).astype(int)
    shuffled = np.random.default_rng(seed).permutation(table.examples)
    drawn = np.concatenate([shuffled[table.labels_N[shuffled] == c][:size] for c, size in enumerate(size_C)])
    parts = (drawn, np.setdiff1d(shuffled, drawn))
    first, second = (weighted_to(take_rows(table, rows), "balanced").table for rows in parts)
    return first, second


def measure(unseen: ExitConfidences, thresholds: tuple[float, ...]) -> NDArray[np.float64]:
    """Accuracy and mean cost."""
    found, weight_N = replay(unseen, unseen.policy("point", thresholds)), unseen.table.example_weights()
    right_N = found.prediction_N == unseen.table.labels_N
    return np.array([np.average(right_N, weights=weight_N), np.average(found.cost_N, weights=weight_N)])


def compare(table: ExitTable, largest: int, smallest: int) -> dict[str, Any]:
    """Mean and deviation over draws: accuracy and cost by budget, and the change of accuracy by `within-1`."""
    measured: dict[str, dict[str, list[NDArray[np.float64]]]] = {"counted": {}, "expected": {}}
    examples = 0
    for seed in range(DRAWS):
        fitting, rest = draw(table, largest, smallest, seed)
        examples = fitting.examples
        confidences, unseen = compute_confidences(fitting), compute_confidences(rest)
        full = measure(unseen, (NEVER,) * (table.exits - 1))
        accuracy = float(np.average(confidences.correct_NE[:, -1], weights=fitting.example_weights()))
        for how, found in measured.items():
            expected_NE = expected_correct(confidences) if how == "expected" else None
            search = ThresholdSearch(confidences, expected_NE=expected_NE, cells=CELLS)
            goals: dict[str, Goal] = {f"budget {budget}": WithinBudget(budget) for budget in BUDGETS}
            goals["within-1"] = AboveFloor(accuracy - LOST, None, search.size_G)
            for name, goal in goals.items():
                value = measure(unseen, search.best(goal))
                found.setdefault(name, []).append(value - [full[0], 0.0] if name == "within-1" else value)
        loss = losses_to_choose_by(fitting, compute_confidences, [(LOST, None)])[LOST, None]
        # Of the search by expected accuracy, which is the last one.
        kept = full if loss is None else measure(unseen, search.best(AboveFloor(accuracy - loss, None, search.size_G)))
        measured["expected"].setdefault(JUDGED, []).append(kept - [full[0], 0.0])
    return {
        "images": examples,
        "largest": largest,
        "smallest": smallest,
        "found": {
            how: {
                name: {
                    "accuracy": float(np.mean(values, axis=0)[0]),
                    "deviation": float(np.std(values, axis=0, ddof=1)[0]),
                    "cost": float(np.mean(values, axis=0)[1]),
                }
                for name, values in found.items()
            }
            for how, found in measured.items()
        },
    }


def page(records: dict[str, list[dict[str, Any]]]) -> str:
    names = [*(f"budget {budget}" for budget in BUDGETS), "within-1", JUDGED]
    lines = [
        "# Thresholds by counted and by expected accuracy",
        "",
        f"Accuracy in % on unseen images at the mean cost there, mean of {DRAWS} draws of calibration images ±",
        "standard deviation; for `within-1` the difference to full depth. Judged: thresholds are chosen by so small a",
        "loss that held-out calibration images lose one point at most, as `elfnet calibrate` does it. Calibration",
        "images are weighted to balanced classes. No test image is used; the networks were trained once, so this says",
        "nothing about other networks.",
        "The constant of the estimate (500 images) was chosen among 200, 500 and 1,000 on the same two tables: they",
        "hardly differ. Written by `python results/compare_searches.py`.",
    ]
    for network, rows in records.items():
        lines += ["", f"## {network}", "", "| images (per class) | by | " + " | ".join(names) + " |"]
        lines.append("|---" * (len(names) + 2) + "|")
        for row in rows:
            for how, found in row["found"].items():
                values = [found.get(name) for name in names]
                cells = [
                    f"{100 * value['accuracy']:.1f} ± {100 * value['deviation']:.1f} at {value['cost']:.2f}"
                    if value
                    else ""
                    for value in values
                ]
                size = f"{row['images']} ({row['largest']} to {row['smallest']})"
                lines.append(f"| {size} | {how} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    records = {}
    for name, splits in SPLITS.items():
        table = calibration_table(name)
        records[name] = [compare(table, *sizes) for sizes in splits]
    atomic.write_json(HERE / "searches" / "record.json", {"draws": DRAWS, "networks": records})
    atomic.write_text(HERE / "searches" / "README.md", page(records))


if __name__ == "__main__":
    main()
