"""What cheaper exit heads cost in accuracy: heads of every kind, learnt on the same frozen backbone.

    python results/compare_heads.py RUN --directory DATA --runs runs/heads

RUN is a finished run with exits on CIFAR-100-LT (ratio 100). Its stages are frozen, batch norm included, and heads of
each kind are learnt on them with balanced softmax. A kind that has a record in `results/heads` is not run again.
Nothing is chosen here, so that accuracies are those of the test split, exit by exit.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.load import load_recipe
from elfnet.run.directory import open_run
from elfnet.train.run import train_recipe

HERE = Path(__file__).parent / "heads"
EPOCHS = 8
KINDS: dict[str, dict[str, Any]] = {
    "conv, 64 filters": {"model.exit_head": "conv", "model.head_filters": 64},
    "conv, 48 filters": {"model.exit_head": "conv", "model.head_filters": 48},
    "separable, 64 filters": {"model.exit_head": "separable", "model.head_filters": 64},
    "grid, 128 filters": {"model.exit_head": "grid", "model.head_filters": 128},
    "none": {"model.exit_head": "none"},
}
"""Settings of each kind; the first is that of the paper."""

INTRODUCTION = f"""# What cheaper exit heads cost in accuracy

Exit heads of each kind on one frozen backbone: the ResNet-32 of `cifar100-lt/joint-ce-drw` (40 epochs, seed 0, ratio
100), heads learnt for {EPOCHS} epochs with balanced softmax and a cosine schedule. Accuracy of each early exit alone on
the 10,000 test images, in %. Cost: multiply-adds of the head, in % of the plain backbone. The backbone was trained
together with heads of the first kind, which may favour them. `grid` has no batch norm and did not learn at this
learning rate (SGD, 0.1); it is made for AdamW, see `resnet9`. Written by `python results/compare_heads.py`, one JSON
file per kind.
"""


def run_kind(kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Learn heads of one kind, and return accuracy and cost by exit."""
    overrides = {
        **KINDS[kind],
        "data.directory": args.directory,
        "model.weights": str(open_run(args.run).checkpoint("last")),
        "model.weights_licence": "own",
        "train.backbone_lr_factor": 0,
        "train.epochs": EPOCHS,
        "train.schedule": "cosine",
        "train.threads": 1,
    }
    name = kind.replace(", ", "-").replace(" ", "-")
    run = train_recipe(load_recipe("cifar100-lt/joint-balanced-softmax", overrides), args.runs / name, overwrite=True)
    table = evaluate_run(run, "test")
    hits_NE = table.logits_NEC.argmax(axis=2) == table.labels_N[:, None]
    info = run.info()
    return {
        "kind": kind,
        "epochs": EPOCHS,
        "seed": 0,
        "accuracy": [round(100 * float(share), 2) for share in hits_NE.mean(axis=0)],
        "head_multiply_adds": list(info.multiply_adds.heads),
        "plain_multiply_adds": info.multiply_adds.plain,
        "n": len(table.labels_N),
        "versions": info.versions,
        "processor": info.hardware.processor,
    }


def write_page() -> None:
    """Write the table of all records."""
    records = [json.loads(file.read_text()) for file in sorted(HERE.glob("*.json"))]
    records.sort(key=lambda one: list(KINDS).index(one["kind"]))
    early = max((len(one["accuracy"]) - 1 for one in records), default=0)
    heads = ["heads", *(f"exit {k + 1}, % (cost of the head, %)" for k in range(early)), "all heads, %"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for one in records:
        shares = [100 * cost / one["plain_multiply_adds"] for cost in one["head_multiply_adds"][:early]]
        cells = [f"{accuracy:.1f} ({share:.1f})" for accuracy, share in zip(one["accuracy"], shares, strict=False)]
        lines.append(f"| {one['kind']} | {' | '.join(cells)} | {sum(shares):.1f} |")
    (HERE / "README.md").write_text("\n".join([INTRODUCTION, *lines]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare exit heads on one frozen backbone.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--directory", default="", help="where the official files of CIFAR-100 are")
    parser.add_argument("--runs", type=Path, default=Path("runs/heads"))
    args = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    for kind in KINDS:
        file = HERE / f"{kind.replace(', ', '-').replace(' ', '-')}.json"
        if not file.is_file():
            file.write_text(json.dumps(run_kind(kind, args), indent=1) + "\n")
        write_page()


if __name__ == "__main__":
    main()
