"""Do the defaults keep their word: `elfnet train` on several data sets, beside a network written by hand.

    taskset -c 0 python results/measure_defaults.py WORK --directory DATA --clothing clothing.tar --threads 1 \\
        --seeds 0 1 --max-hours 6

Writes the data sets into WORK/data, trains each with defaults only, and `benchmarks/hand_written_cnn.py` on the same
files. A cell (data set, seed) that has a record in `results/defaults-measured` is not run again, and a training that
was stopped, by `--max-hours` or by a kill, is resumed by the same command. The table is written anew after every cell;
`--commit` commits it. `cifar10-lt` is held out: it is run only with `--held-out`, once, when nothing is going to change
any more.
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from write_cifar_folder import write_split
from write_own_folders import splits_of

from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_source, load_splits
from elfnet.data.splits import Splits, make_splits
from elfnet.data.types import LabelledImages
from elfnet.recipe.load import load_recipe
from elfnet.run.directory import RunDirectory

HERE = Path(__file__).parent / "defaults-measured"
BY_HAND = Path(__file__).parent.parent / "benchmarks" / "hand_written_cnn.py"
HELD_OUT = "cifar10-lt"
DATA = ("digits", "grey", "rows", "clothing", "cifar100-lt", HELD_OUT)
UNITS = {"seconds": 1, "minutes": 60, "hours": 3600}
HALF = "budget=0.5"


class OutOfTimeError(Exception):
    """`--max-hours` are over; the training that was interrupted resumes in the next call."""


def write_data(name: str, args: argparse.Namespace) -> Path:
    """Write a data set once: a folder with `train` and `test`, or a folder with two files of feature rows."""
    place: Path = args.work / "data" / name
    if place.is_dir():
        return place
    part = place.with_name(f"{name}.part")
    if name == "clothing":
        with tarfile.open(args.clothing) as archive:
            archive.extractall(part, filter="data")
    elif name == "rows":
        _write_rows(part)
    else:
        if name in ("digits", "grey"):
            splits = splits_of(name, args.directory)
        else:
            splits = load_splits(load_recipe(f"{name}/ce", {"data.directory": args.directory}).data)
        for split in ("train", "test"):
            write_split(getattr(splits, split), splits.class_names, part / split)
    part.rename(place)
    return place


def row_splits() -> Splits:
    """scikit-learn's digits with 100 to 4 training images per class, and 50 for test."""
    return make_splits(
        load_source("digits"), profile="exponential", ratio=25, largest=100, calibration_per_class=1, test_per_class=50
    )


def _write_rows(place: Path) -> None:
    """The 64 values of each digit as a row of features."""
    splits = row_splits()
    place.mkdir(parents=True)
    for split in ("train", "test"):
        images = getattr(splits, split)
        assert isinstance(images, LabelledImages)
        rows = images.images_NHWC[:, ::4, ::4].reshape(len(images), -1).astype(np.float32)
        np.savez(place / f"{split}.npz", X=rows, y=images.labels_N)


def _stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupt a training, or kill it if it does not end; both can be resumed."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


@dataclass
class Progress:
    """What is known about a cell that is not finished: how long it took so far, and what was announced."""

    file: Path
    known: dict[str, Any]

    @classmethod
    def open(cls, file: Path) -> "Progress":
        return cls(file, json.loads(file.read_text()) if file.is_file() else {"seconds": 0.0, "cpu_seconds": 0.0})

    def update(self, **found: Any) -> None:
        self.known.update(found)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.known))


def run_within(command: list[str], *, threads: int, deadline: float, progress: Progress) -> tuple[str, str]:
    """Run a command until it ends or the time is over; its time is added to the progress. Returns both outputs."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    is_over = False
    try:
        out, err = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        is_over = True
        out, err = _stop(process)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # A resumed run announces nothing.
    told = next((line for line in err.splitlines() if re.search(r" -> .* about \d", line)), "")
    progress.update(
        seconds=progress.known["seconds"] + time.monotonic() - began,
        cpu_seconds=progress.known["cpu_seconds"] + spent,
        **({"announced": told} if told else {}),
    )
    if is_over:
        raise OutOfTimeError
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{err[-2000:]}")
    return out, err


def announced_seconds(line: str) -> float | None:
    """The time in a line such as `... 89 epochs, about 9 minutes on 2 threads`."""
    found = re.search(r"about ([\d.]+) (seconds|minutes|hours)", line)
    return None if found is None else float(found[1]) * UNITS[found[2]]


def train_defaults(data: str, seed: int, args: argparse.Namespace, deadline: float) -> dict[str, Any]:
    """Train with defaults, or resume, and return what a record holds about it."""
    place, out = args.work / "data" / data, args.work / "runs" / f"{data}-{seed}"
    progress = Progress.open(args.work / "progress" / f"{data}-{seed}.json")
    if not (out / "metrics.json").is_file():
        if (out / "recipe.toml").is_file():
            words = ["--resume"]
        elif data == "rows":
            words = ["features", "--data.train", str(place / "train.npz"), "--data.test", str(place / "test.npz")]
        else:
            words = ["folder", "--data.root", str(place)]
        if words != ["--resume"]:
            words += ["--train.seed", str(seed), "--train.threads", str(args.threads)]
            words += ["--train.hours", str(args.hours)] if args.hours and data != "rows" else []
        command = [sys.executable, "-m", "elfnet", "train", *words, "--out", str(out), "--json"]
        run_within(command, threads=args.threads, deadline=deadline, progress=progress)
    run = RunDirectory(out)
    family, results = Family.open(run.policy_file), run.results()
    mix = np.array(family.class_mix) if family.class_mix else None
    points = []
    for point in family.points:
        if point.held_out is None:
            continue
        found = results.points[point.name]
        by_class = np.array([np.nan if one is None else one for one in found.accuracy_by_class])
        accuracy = found.accuracy if mix is None else float(np.nansum(mix * by_class) / mix[~np.isnan(by_class)].sum())
        points.append({"point": point.name, "low": point.held_out.low, "high": point.held_out.high, "test": accuracy})
    shown = {name: results.points[name] for name in ("full", family.default.name, HALF) if name in results.points}
    return {
        "set_up": progress.known.get("announced", ""),
        "announced_seconds": announced_seconds(progress.known.get("announced", "")),
        "seconds": round(progress.known["seconds"], 1),
        "cpu_seconds": round(progress.known["cpu_seconds"], 1),
        "default_point": family.default.name,
        "chosen_on": family.chosen_on,
        "balanced_accuracy": {name: round(100 * one.balanced_accuracy, 2) for name, one in shown.items()},
        "mean_cost": {name: round(one.mean_cost, 4) for name, one in shown.items()},
        "intervals": points,
        "versions": run.info().versions,
        "processor": run.info().hardware.processor,
        "precision": run.info().machine.precision,
    }


def train_by_hand(data: str, seed: int, args: argparse.Namespace, deadline: float) -> dict[str, Any]:
    """Train the network that is written by hand; it cannot be resumed and starts over."""
    progress = Progress.open(args.work / "progress" / f"{data}-{seed}-by-hand.json")
    progress.known = {"seconds": 0.0, "cpu_seconds": 0.0}
    command = [sys.executable, str(BY_HAND), str(args.work / "data" / data), "--seed", str(seed)]
    out, _ = run_within(command, threads=args.threads, deadline=deadline, progress=progress)
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def run_cell(data: str, seed: int, args: argparse.Namespace, deadline: float) -> dict[str, Any]:
    """Measure one data set with one seed."""
    write_data(data, args)
    load = os.getloadavg()[2]
    defaults = train_defaults(data, seed, args, deadline)
    by_hand = train_by_hand(data, seed, args, deadline)
    return {
        "data": data,
        "seed": seed,
        "threads": args.threads,
        "hours": args.hours or None,
        "load_before": round(load, 2),
        "defaults": defaults,
        "by_hand": by_hand,
    }


INTRODUCTION = """# Do the defaults keep their word

`elfnet train folder --data.root DATA` (rows: `elfnet train features`) with defaults only, beside
`benchmarks/hand_written_cnn.py` (rows: a perceptron) on the same files. DATA has `train` and `test`; the clothing
photos also have `validation`, which is the calibration split, and which the network by hand does not use. Balanced
accuracy on the test split in %, at full depth, at the default point (which answers if none is named) and at half the
cost. Times are wall-clock minutes of this machine, with its load before the run; interrupted runs count the time that
they ran. Where other work held a run up, its processor time per thread tells more than the time taken. Written by
`python results/measure_defaults.py`, one JSON file per cell.

Held out, and run once at the end: `cifar10-lt`.
"""


def row(one: dict[str, Any]) -> list[str]:
    """The cells of the table for one record."""
    defaults, hand = one["defaults"], one["by_hand"]["balanced_accuracy"]["test"]
    full, half = (defaults["balanced_accuracy"].get(name) for name in ("full", HALF))
    announced, taken = defaults["announced_seconds"], defaults["seconds"]
    inside = [point["low"] <= point["test"] <= point["high"] for point in defaults["intervals"]]
    ratio = "" if announced is None else f"{taken / announced:.2f}"
    worked = "" if announced is None else f"{defaults['cpu_seconds'] / one['threads'] / announced:.2f}"
    return [
        one["data"],
        str(one["seed"]),
        f"{full:.1f}",
        f"{default_accuracy(one):.1f}",
        f"{hand:.1f}",
        f"{default_accuracy(one) - hand:+.1f}",
        "-" if half is None else f"{half:.1f} (at {defaults['mean_cost'][HALF]:.2f})",
        "-" if half is None else f"{half - hand:+.1f}",
        "-" if announced is None else f"{announced / 60:.1f}",
        f"{taken / 60:.1f}",
        ratio,
        worked,
        f"{sum(inside)} of {len(inside)}",
        "cross-fitting" if "cross-fitting" in defaults["chosen_on"] else "held out",
        f"{one['load_before']:.1f}",
    ]


def write_page() -> None:
    """Write the table of all records, and what holds of the aims."""
    records = [json.loads(file.read_text()) for file in sorted(HERE.glob("*.json"))]
    heads = ["data", "seed", "full depth", "default point", "by hand", "default minus by hand"]
    heads += ["half the cost", "half minus by hand"]
    heads += ["announced, min", "taken, min", "taken / announced", "processor time / announced"]
    heads += ["inside 95 % interval", "points by", "load"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(row(one))} |" for one in records]
    points = [point for one in records for point in one["defaults"]["intervals"]]
    inside = sum(point["low"] <= point["test"] <= point["high"] for point in points)
    gains = [default_accuracy(one) - _hand(one) for one in records]
    full = [one["defaults"]["balanced_accuracy"]["full"] - _hand(one) for one in records]
    half = [one["defaults"]["balanced_accuracy"].get(HALF, -np.inf) - _hand(one) for one in records]
    timed = [one["defaults"] for one in records if one["defaults"]["announced_seconds"]]
    on_time = sum(0.7 <= one["seconds"] / one["announced_seconds"] <= 1.3 for one in timed)
    missing = [data for data in DATA if not any(one["data"] == data for one in records)]
    share = f" ({100 * inside / len(points):.0f} %, aim 90 %)" if points else ""
    lines += [
        "",
        f"- At least as accurate as by hand: {sum(gain >= 0 for gain in gains)} of {len(records)} cells at the default "
        f"point, {sum(gain >= 0 for gain in full)} at full depth.",
        f"- At half the cost within one point of it: {sum(gain >= -1 for gain in half)} of {len(records)}.",
        f"- Within the announced time ± 30 %: {on_time} of {len(timed)}.",
        f"- Test accuracy inside the stated interval: {inside} of {len(points)} points{share}.",
        f"- Not measured yet: {', '.join(missing) or '-'}.",
    ]
    (HERE / "README.md").write_text("\n".join([INTRODUCTION, *lines]) + "\n")


def default_accuracy(one: dict[str, Any]) -> float:
    """The accuracy of the default point, which answers if none is named."""
    accuracies: dict[str, float] = one["defaults"]["balanced_accuracy"]
    return accuracies[one["defaults"]["default_point"]]


def _hand(one: dict[str, Any]) -> float:
    return float(one["by_hand"]["balanced_accuracy"]["test"])


def commit(name: str) -> None:
    """Commit the record of a cell and the table."""
    subprocess.run(["git", "add", str(HERE)], check=True, cwd=HERE)
    subprocess.run(
        ["git", "commit", "-q", "-m", f"Results: the defaults on {name}", "--", str(HERE)], check=True, cwd=HERE
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the defaults beside a network that is written by hand.")
    parser.add_argument("work", type=Path, help="directory of data and runs, kept between calls")
    parser.add_argument("--directory", default="", help="where the official files of CIFAR are")
    parser.add_argument("--clothing", type=Path, help="archive of the clothing photos, with train and test")
    parser.add_argument("--only", nargs="*", choices=DATA, default=DATA, help="data sets")
    parser.add_argument("--held-out", action="store_true", help=f"also run {HELD_OUT}")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hours", type=float, default=0.0, help="train.hours of each run; 0: the default")
    parser.add_argument("--max-hours", type=float, default=168.0, help="stop after this time; the next call resumes")
    parser.add_argument("--commit", action="store_true", help="commit the record and the table after every cell")
    args = parser.parse_args()
    args.work = args.work.resolve()
    HERE.mkdir(exist_ok=True)
    deadline = time.monotonic() + 3600 * args.max_hours
    for seed in args.seeds:
        for data in args.only:
            file = HERE / f"{data}-{seed}.json"
            if file.is_file() or (data == HELD_OUT and not args.held_out) or (data == "clothing" and not args.clothing):
                continue
            try:
                record = run_cell(data, seed, args, deadline)
            except OutOfTimeError:
                sys.stdout.write(f"the time is over in {data}, seed {seed}; the same command resumes it\n")
                return
            file.write_text(json.dumps(record, indent=1) + "\n")
            write_page()
            sys.stdout.write(" | ".join(row(record)) + "\n")
            sys.stdout.flush()
            if args.commit:
                commit(f"{data}, seed {seed}")


if __name__ == "__main__":
    main()
