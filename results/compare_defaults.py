"""Which training is the default for a user's own images: candidates on several data sets, judged on calibration splits.

    python results/compare_defaults.py FOLDERS --runs runs/defaults --only digits grey --seeds 0

FOLDERS holds one folder of images per data set, each with `train`, `calibration` (or `validation`) and `test`, from
`results/write_own_folders.py`, `results/write_cifar_folder.py` and the clothing photos. A cell (data set, candidate,
seed) that has a record is not run again, so that the script can be stopped and started. The test splits are not read.
`cifar10-lt` is held out: no candidate is run on it, and the chosen defaults are measured on it once.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sklearn.metrics import balanced_accuracy_score

from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.load import load_recipe
from elfnet.train.run import train_recipe

HERE = Path(__file__).parent / "defaults"
HELD_OUT = "cifar10-lt"
BY_HAND = "by hand"
SCRIPT = Path(__file__).parent.parent / "benchmarks" / "hand_written_cnn.py"
SMALL = {
    "data.image_size": 32,
    "data.fit": "squash",
    "data.normalise": "measured",
    "data.augment": "crop",
    "data.pad": 3,
    "data.colour_jitter": 0,
    "data.workers": 0,
    "model.backbone": "resnet9",
    "train.compile": "off",
    "train.threads": 1,
    "train.batch_size": 64,
    "train.epochs": 30,
}
COLOUR = {**SMALL, "data.augment": "crop-flip"}
PHOTOS = {
    **SMALL,
    "data.image_size": 64,
    "data.augment": "resized-crop-flip",
    "data.min_crop_area": 0.35,
    "data.colour_jitter": 0.2,
    "model.backbone": "resnet9_s2",
}
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "digits": ("digits", {**SMALL, "train.batch_size": 32}),
    "digits, steeper": ("digits", {**SMALL, "train.batch_size": 32, "data.profile": "exponential", "data.ratio": 49}),
    "grey": ("grey", SMALL),
    "grey, steeper": ("grey", {**SMALL, "data.profile": "exponential", "data.ratio": 100}),
    "clothing": ("clothing", PHOTOS),
    "cifar100-lt": ("cifar100-lt", {**COLOUR, "train.epochs": 20}),
}
"""Folder and settings of each data set, as the automatic set-up would choose them but for fewer epochs."""
SGD = {"train.optimizer": "sgd", "train.lr": 0.05, "train.nesterov": True, "train.weight_decay": 5e-4}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "joint-quick": ("joint-quick", {}),
    "ELF's training rule": ("joint-quick", {"exits.rule": "elf"}),
    "elf-ce-drw": ("elf-ce-drw", {}),
}
"""Candidates for the default, compared on all data sets."""
INGREDIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "without label smoothing": ("joint-quick", {"criterion.label_smoothing": 0}),
    "heads of a global average": ("joint-quick", {"model.exit_head": "none"}),
    "resnet20": ("joint-quick", {"model.backbone": "resnet20", "model.head_filters": 16}),
    "SGD": ("joint-quick", SGD),
    "averaged weights": ("joint-quick", {"train.ema_decay": 0.99}),
    "TrivialAugment": ("joint-quick", {"data.policy": "trivialaugment"}),
    "CutMix": ("joint-quick", {"train.mix": "cutmix"}),
    "mixup": ("joint-quick", {"train.mix": "mixup"}),
}
"""One change of `joint-quick` each, compared on grey images."""
CANDIDATES = {**METHODS, **INGREDIENTS}

PAIRS = [
    (data, candidate)
    for data, (_, settings) in DATA.items()
    for candidate in (BY_HAND, *(CANDIDATES if data == "grey" else METHODS))
    # The script by hand reads a folder as it is.
    if candidate != BY_HAND or "data.profile" not in settings
]


def run_by_hand(data: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """The accuracy of the network that is written by hand on the same calibration split."""
    folder, _ = DATA[data]
    command = [sys.executable, str(SCRIPT), str(args.folders / folder), "--seed", str(seed)]
    command += ["--side", str(DATA[data][1]["data.image_size"])]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    accuracy = next(value for split, value in found["balanced_accuracy"].items() if split != "test")
    return {
        "data": data,
        "candidate": BY_HAND,
        "seed": seed,
        "calibration_balanced_accuracy": [round(accuracy / 100, 4)],
        "seconds": found["seconds"],
    }


def run_cell(name: str, data: str, candidate: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train one candidate, and return its accuracy on the calibration split, by exit."""
    method, settings = CANDIDATES[candidate]
    folder, of_data = DATA[data]
    overrides = {**of_data, **settings, "data.root": str(args.folders / folder), "train.seed": seed}
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
`python results/compare_defaults.py`, one JSON file per run. A candidate is `joint-quick` on resnet9 (of photos, at 64
pixels, on resnet9_s2) with the named change; `elf-ce-drw` is that recipe on the same network; `by hand` is
`benchmarks/hand_written_cnn.py`. 30 epochs, CIFAR-100-LT 20. Steeper: the same images, cut by an exponential profile.
Seconds are those of one thread of a machine with other work on it.

Held out: `cifar10-lt`, CIFAR-10-LT written out as files. No candidate is run on it, and the defaults are measured on it
once, at the end. Seen: `digits`, `grey`, `clothing`, `cifar100-lt`.
"""


def _mean_of_seeds(records: list[dict[str, Any]]) -> list[str]:
    """A table of the last exit: the mean over the seeds of each method, and the number of seeds."""
    names = (BY_HAND, *METHODS)
    lines = ["Last exit, mean of the seeds (their number; largest minus smallest):", ""]
    lines += [f"| data | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for data in DATA:
        cells = []
        for name in names:
            found = [
                100 * one["calibration_balanced_accuracy"][-1]
                for one in records
                if (one["data"], one["candidate"]) == (data, name)
            ]
            spread = f"; {max(found) - min(found):.1f}" if len(found) > 1 else ""
            cells.append(f"{sum(found) / len(found):.1f} ({len(found)}{spread})" if found else "-")
        lines.append(f"| {data} | {' | '.join(cells)} |")
    return lines


def write_page() -> None:
    """Write the table of all records."""
    records = [json.loads(file.read_text()) for file in sorted(HERE.glob("*.json"))]
    lines = ["| data | candidate | seed | exits 1 to last | seconds |", "|---|---|---|---|---|"]
    for one in records:
        exits = " / ".join(f"{100 * accuracy:.1f}" for accuracy in one["calibration_balanced_accuracy"])
        lines.append(f"| {one['data']} | {one['candidate']} | {one['seed']} | {exits} | {one['seconds']:.0f} |")
    lines += ["", *_mean_of_seeds(records)]
    done = {(one["data"], one["candidate"]) for one in records}
    missing = [pair for pair in PAIRS if pair not in done]
    todo = f"Not run yet: {len(missing)} of {len(PAIRS)} pairs of data and candidate."
    (HERE / "README.md").write_text("\n".join([INTRODUCTION, *lines, "", todo]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare candidates for the default training of own images.")
    parser.add_argument("folders", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--only", nargs="*", choices=tuple(DATA), default=tuple(DATA), help="data sets")
    parser.add_argument("--candidates", nargs="*", choices=(BY_HAND, *CANDIDATES), default=(BY_HAND, *CANDIDATES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    args = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    write_page()
    for seed in args.seeds:
        for data, candidate in PAIRS:
            name = re.sub(r"[^a-z0-9]+", "-", f"{data}-{candidate}-{seed}".lower())
            file = HERE / f"{name}.json"
            if data not in args.only or candidate not in args.candidates or file.is_file():
                continue
            by_hand = candidate == BY_HAND
            found = run_by_hand(data, seed, args) if by_hand else run_cell(name, data, candidate, seed, args)
            file.write_text(json.dumps(found) + "\n")
            sys.stdout.write(file.read_text())
            sys.stdout.flush()
            write_page()


if __name__ == "__main__":
    main()
