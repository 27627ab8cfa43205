"""What a training with fewer multiply-adds costs: resizing, pruning and `drop` against the plain network.

    python benchmarks/bench_less_work.py RUN PLAIN [RUN PLAIN ...]

RUN and PLAIN are finished runs of the same data, trained one after the other on a core that did nothing else. PLAIN may
be shorter: all epochs of a plain network have the same cost, so its work and time are scaled to the length of RUN, and
only the accuracy of RUN is written. Multiply-adds are counted from the log: examples shown, the exits that they visited
(with `exits.after_exit=drop`; else all), and the size of the images. Accuracy is that of the calibration split at full
depth.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elfnet.evaluate.run import evaluate_run
from elfnet.run.directory import RunDirectory, open_run
from elfnet.run.log import EpochRecord
from timing import write_results


def multiply_adds(run: RunDirectory) -> float:
    """Of all forward passes of the training, heads included."""
    recipe, info = run.recipe(), run.info()
    to_exit_E = np.cumsum(np.array(info.multiply_adds.stages) + np.array(info.multiply_adds.heads))
    drops = recipe.exits.after_exit == "drop" and recipe.exits.rule == "elf"
    total = 0.0
    for record in _training(run.log()):
        per_image = float(np.dot(record.exit_share, to_exit_E)) if drops else float(to_exit_E[-1])
        # Convolutions are all but a thousandth of the cost, and theirs goes with the area.
        shown = info.data.train if record.examples is None else record.examples
        total += shown * per_image * (1.0 if record.image_side is None else record.image_side) ** 2
    return total


def _training(log: Sequence[EpochRecord]) -> list[EpochRecord]:
    """Without a second stage, which has a cost of its own."""
    return [record for record in log if record.stage in (None, "training")]


def training_seconds(run: RunDirectory, *, epochs: int) -> float:
    """Of a training of so many epochs, without a second stage. The first epoch includes compiling."""
    first, *others = (record.seconds for record in _training(run.log()))
    return first + sum(others) * (epochs - 1) / len(others)


def accuracy(run: RunDirectory) -> float:
    table = evaluate_run(run, "calibration")
    return float((table.logits_NEC[:, -1].argmax(axis=1) == table.labels_N).mean())


def compare(run: RunDirectory, plain: RunDirectory) -> dict[str, object]:
    """Of the training with less work, relative to the plain network's."""
    recipe, shorter = run.recipe(), plain.recipe().train.epochs
    epochs = recipe.train.epochs
    work = [multiply_adds(run), multiply_adds(plain) * epochs / shorter]
    seconds = [training_seconds(one, epochs=epochs) for one in (run, plain)]
    found = {"run": round(accuracy(run), 4)}
    if shorter == epochs:
        found["plain"] = round(accuracy(plain), 4)
    return {
        "data": f"{recipe.data.source}, {run.info().data.train} images, augmentation {recipe.data.augment}, policy "
        f"{recipe.data.policy}",
        "backbone": recipe.model.backbone,
        "schedule": recipe.train.schedule,
        "epochs": epochs,
        "settings": {
            "train.resize_start": recipe.train.resize_start,
            "train.prune": recipe.train.prune,
            "exits.after_exit": recipe.exits.after_exit,
        },
        "multiply-adds relative to plain (aim: at most 0.5)": round(work[0] / work[1], 3),
        "time relative to plain (aim: at most 0.5)": round(seconds[0] / seconds[1], 3),
        "epochs of plain": shorter,
        "calibration accuracy": found,
    }


def main() -> None:
    places = [Path(word) for word in sys.argv[1:]]
    if not places or len(places) % 2:
        sys.exit(__doc__)
    pairs = [(open_run(run), open_run(plain)) for run, plain in zip(places[::2], places[1::2], strict=True)]
    write_results(
        "less_work",
        {
            "what": "a whole training with less work against that of the plain network: counted multiply-adds, time, "
            "accuracy",
            "trainings": [compare(run, plain) for run, plain in pairs],
        },
    )


if __name__ == "__main__":
    main()
