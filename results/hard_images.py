"""Do hard images leave later? How a plain network, trained apart, does on the images that leave at each exit.

    python results/hard_images.py cifar10-lt-100 PLAIN-RUN ELF-RUN...

A network's own confidence decides where it lets an image go, so that its own accuracy by exit would prove little; the
plain network's says how hard the images are to somebody else. The operating point is chosen on the calibration split
for a budget of 0.7. Writes `results/cifar10-lt-100/hard-images.json` and `hard-images.md`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from elfnet import atomic
from elfnet.calibrate.point_family import Family
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.run.directory import open_run

HERE = Path(__file__).parent
POINT = "budget=0.7"


def by_exit(plain: ExitTable, table: ExitTable, family: Family) -> list[dict[str, Any]]:
    """For the images that leave at each exit: how many, the plain network's answers, and the run's own."""
    assert np.array_equal(plain.labels_N, table.labels_N), "the runs were not measured on the same test images"
    answers = replay(table, family.point(POINT).policy)
    judge = compute_confidences(plain)
    right_N = judge.prediction_NE[:, -1] == plain.labels_N
    rows = []
    for number in range(table.exits):
        here_N = answers.exit_N == number
        if here_N.any():
            rows.append(
                {
                    "exit": number + 1,
                    "images": int(here_N.sum()),
                    "plain_accuracy": float(right_N[here_N].mean()),
                    "plain_mean_confidence": float(judge.confidence_NE[here_N, -1].mean()),
                    "own_accuracy": float((answers.prediction_N == table.labels_N)[here_N].mean()),
                }
            )
    return rows


def page(judge: str, runs: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "# Do hard images leave later?",
        "",
        f"Test images by the exit at which they leave at the operating point `{POINT}`, and how the plain network "
        f"`{judge}`, trained apart, answers them. Written by `python results/hard_images.py`.",
        "",
        "| run | exit | images | plain network right (%) | its mean confidence | the run itself right (%) |",
        "|---|---|---|---|---|---|",
    ]
    for run, rows in runs.items():
        lines += [
            f"| {run} | {row['exit']} | {row['images']} | {100 * row['plain_accuracy']:.1f} | "
            f"{row['plain_mean_confidence']:.2f} | {100 * row['own_accuracy']:.1f} |"
            for row in rows
        ]
    return "\n".join([*lines, ""])


def main(folder: str, judge: str, places: list[str]) -> None:
    plain = ExitTable.open(open_run(judge).table("test"))
    runs = {}
    for place in places:
        run = open_run(place)
        runs[run.root.name] = by_exit(plain, ExitTable.open(run.table("test")), Family.open(run.policy_file))
    name = open_run(judge).root.name
    atomic.write_json(HERE / folder / "hard-images.json", {"point": POINT, "judge": name, "runs": runs})
    atomic.write_text(HERE / folder / "hard-images.md", page(name, runs))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
