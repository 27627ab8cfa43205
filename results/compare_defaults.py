"""Which training is the default for a user's own images: candidates on several data sets, judged on calibration splits.

    python results/compare_defaults.py FOLDERS --runs runs/defaults --only digits grey --seeds 0

FOLDERS holds one folder of images per data set, each with `train`, `calibration` (or `validation`) and `test`, from
`results/write_own_folders.py`, `results/write_cifar_folder.py` and the clothing photos. A cell (data set, candidate,
seed) that has a record is not run again, so that the script can be stopped and started. The test splits are not read.
`cifar10-lt` is held out: no candidate is run on it, and the chosen defaults are measured on it once.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from sklearn.metrics import balanced_accuracy_score

from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.load import load_recipe
from elfnet.train.run import train_recipe

HERE = Path(__file__).parent / "defaults"
HELD_OUT = "cifar10-lt"
SMALL = {
    "data.image_size": 32,
    "data.normalise": "measured",
    "data.augment": "crop",
    "data.pad": 3,
    "data.colour_jitter": 0,
    "data.workers": 0,
    "model.backbone": "resnet9",
    "train.compile": "off",
    "train.batch_size": 64,
}
DATA: dict[str, dict[str, Any]] = {
    "digits": {**SMALL, "train.epochs": 30, "train.batch_size": 32},
    "grey": {**SMALL, "train.epochs": 30},
    "clothing": {**SMALL, "data.image_size": 64, "data.pad": 6, "train.epochs": 30, "data.augment": "crop-flip"},
    "cifar100-lt": {**SMALL, "train.epochs": 20, "data.augment": "crop-flip"},
}
"""Settings of each data set as the automatic set-up would choose them from its files, but for fewer epochs."""
SGD = {
    "train.lr": 0.05,
    "train.nesterov": True,
    "train.weight_decay": 5e-4,
    "train.schedule": "cosine",
    "train.decay_norms_and_biases": False,
}
ADAMW = {
    "train.optimizer": "adamw",
    "train.lr": 3e-3,
    "train.weight_decay": 0.05,
    "train.schedule": "one-cycle",
    "train.warmup_epochs": 60,
    "train.decay_norms_and_biases": False,
}
RESNET20 = {"model.backbone": "resnet20", "model.head_filters": 16}
CANDIDATES: dict[str, tuple[str, dict[str, Any]]] = {
    "joint-adamw": ("joint-balanced-softmax", ADAMW),
    "joint-adamw-resnet20": ("joint-balanced-softmax", {**ADAMW, **RESNET20}),
    "elf-adamw": ("elf-balanced-softmax", ADAMW),
    "joint-sgd": ("joint-balanced-softmax", SGD),
    "joint-adamw-average": ("joint-balanced-softmax", {**ADAMW, "train.ema_decay": 0.99}),
    "joint-adamw-trivial": ("joint-balanced-softmax", {**ADAMW, "data.policy": "trivialaugment"}),
    "joint-adamw-equilibrium": ("joint-balanced-softmax", {**ADAMW, "criterion.equilibrium": True}),
    "elf-ce-drw": ("elf-ce-drw", {}),
}


def run_cell(name: str, data: str, candidate: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train one candidate, and return its accuracy on the calibration split, by exit."""
    method, settings = CANDIDATES[candidate]
    overrides = {**DATA[data], **settings, "data.root": str(args.folders / data), "train.seed": seed}
    run = train_recipe(load_recipe(f"folder/{method}", overrides), args.runs / name, overwrite=True)
    table = evaluate_run(run, "calibration")
    answers_NE = table.logits_NEC.argmax(axis=2)
    return {
        "data": data,
        "candidate": candidate,
        "seed": seed,
        "calibration_balanced_accuracy": [
            round(float(balanced_accuracy_score(table.labels_N, answers_NE[:, k])), 4) for k in range(table.exits)
        ],
        "seconds": round(sum(record.seconds for record in run.log()), 1),
    }


INTRODUCTION = """# Which training is the default for own images

Balanced accuracy in % on the calibration split, exit by exit, at the last epoch; test splits were not read. Written by
`python results/compare_defaults.py`, one JSON file per run. Network: resnet9, unless the candidate names another.
Seconds are those of one thread of a machine with other work on it.

Held out: `cifar10-lt`, CIFAR-10-LT written out as files. No candidate is run on it, and the defaults are measured on it
once, at the end. Seen: `digits`, `grey`, `clothing`, `cifar100-lt`.
"""


def write_page() -> None:
    """Write the table of all records."""
    records = [json.loads(file.read_text()) for file in sorted(HERE.glob("*.json"))]
    lines = ["| data | candidate | seed | exits 1 to last | seconds |", "|---|---|---|---|---|"]
    for one in records:
        exits = " / ".join(f"{100 * accuracy:.1f}" for accuracy in one["calibration_balanced_accuracy"])
        lines.append(f"| {one['data']} | {one['candidate']} | {one['seed']} | {exits} | {one['seconds']:.0f} |")
    missing = [
        f"{data} {candidate}"
        for data in DATA
        for candidate in CANDIDATES
        if not any((one["data"], one["candidate"]) == (data, candidate) for one in records)
    ]
    todo = f"Not run yet: {len(missing)} of {len(DATA) * len(CANDIDATES)} pairs of data and candidate."
    (HERE / "README.md").write_text("\n".join([INTRODUCTION, *lines, "", todo]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare candidates for the default training of own images.")
    parser.add_argument("folders", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--only", nargs="*", choices=tuple(DATA), default=tuple(DATA), help="data sets")
    parser.add_argument("--candidates", nargs="*", choices=tuple(CANDIDATES), default=tuple(CANDIDATES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    args = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    write_page()
    for seed in args.seeds:
        for data in args.only:
            for candidate in args.candidates:
                name = f"{data}-{candidate}-{seed}"
                file = HERE / f"{name}.json"
                if not file.is_file():
                    file.write_text(json.dumps(run_cell(name, data, candidate, seed, args)) + "\n")
                sys.stdout.write(file.read_text())
                sys.stdout.flush()
                write_page()


if __name__ == "__main__":
    main()
