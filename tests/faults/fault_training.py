"""Trainings that are killed, that cannot write, and that meet in one directory; each in a forked process.

A kill comes at the n-th operation on files (audit events of Python), so that a case can be repeated.
"""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elfnet.errors import ElfnetError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe
from fault_case import Outcomes

SETTINGS: dict[str, Any] = {
    "data.calibration_per_class": 2,
    "data.test_per_class": 2,
    "train.epochs": 2,
    "train.batch_size": 24,
    "train.precision": "float32",
    "train.compile": "off",
    "train.threads": 1,
}
"""A perceptron on a few rows of features: what is tested are the files of a run, and training should take no time."""
FILE_EVENTS = frozenset(
    {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.scandir", "tempfile.mkstemp"}
)
ROWS = "rows.npz"
DONE, REFUSED, BUG = 0, 10, 11
"""Exit codes of the forked process."""


def kills(seed: int, count: int, directory: Path) -> Outcomes:
    """Kill trainings up to three times, also with --overwrite; then finish: bit-equal to an undisturbed run."""
    outcomes = Outcomes()
    expected = {s: _reference(directory / f"reference{s}", s) for s in (0, 1)}
    for case in range(count):
        rng = np.random.default_rng((seed, case))
        run = RunDirectory(directory / "run")
        overwritten = bool(rng.integers(3) == 0)
        if overwritten:
            shutil.copytree(directory / "reference1", run.root)
        for _ in range(1 + int(rng.integers(3))):
            # A resumed training has fewer operations: early ones are drawn more often.
            event = 1 + int(expected[0].events * rng.random() ** 2)
            start = _start_again if overwritten and _is_of_seed(run, 1) else _train
            code = _forked(partial(start, run, 0), kill_at=event, under=directory)
            outcomes.add("killed") if code == -signal.SIGKILL else outcomes.add(f"ended before the kill ({code})")
        start = _start_again if overwritten and _is_of_seed(run, 1) else _train
        code = _forked(partial(start, run, 0))
        _check(outcomes, run, code, expected[0], f"case {case}")
        shutil.rmtree(run.root, ignore_errors=True)
    return outcomes


def full_disk(seed: int, count: int, directory: Path) -> Outcomes:
    """Limit the size of files, so that writes fail; then finish without a limit: bit-equal to an undisturbed run."""
    outcomes = Outcomes()
    expected = _reference(directory / "reference0", 0)
    largest = max(path.stat().st_size for path in (directory / "reference0").rglob("*") if path.is_file())
    for case in range(count):
        run = RunDirectory(directory / "run")
        limit = int(largest * np.random.default_rng((seed, case)).random() ** 3)
        code = _forked(partial(_train, run, 0), max_file_bytes=limit)
        outcomes.add("refused in one line") if code == REFUSED else outcomes.fail(f"case {case}: exit code {code}")
        _check(outcomes, run, _forked(partial(_train, run, 0)), expected, f"case {case}")
        shutil.rmtree(run.root, ignore_errors=True)
    return outcomes


def concurrency(seed: int, count: int, directory: Path) -> Outcomes:
    """Start two trainings with seeds 0 and 1 in one directory, up to three times, and kill some of them.

    The run is that of one seed, and it ends bit-equal to an undisturbed one.
    """
    outcomes = Outcomes()
    expected = {s: _reference(directory / f"reference{s}", s) for s in (0, 1)}
    for case in range(count):
        rng = np.random.default_rng((seed, case))
        run = RunDirectory(directory / "run")
        for _ in range(1 + int(rng.integers(3))):
            killed = rng.random(2) < 0.5
            pids = []
            for s in (0, 1):
                event = 1 + int(expected[0].events * rng.random() ** 2) if killed[s] else None
                pids.append(_fork(partial(_train, run, s), kill_at=event, under=directory))
            for code in map(_wait, pids):
                name = {DONE: "trained", REFUSED: "refused in one line", -signal.SIGKILL: "killed"}.get(code)
                outcomes.add(name) if name else outcomes.fail(f"case {case}: exit code {code}")
        owner = 0 if not run.exists() or _is_of_seed(run, 0) else 1
        _check(outcomes, run, _forked(partial(_train, run, owner)), expected[owner], f"case {case}")
        shutil.rmtree(run.root, ignore_errors=True)
    return outcomes


class _Reference:
    """An undisturbed run: hash of its weights, and the number of operations on files that it took."""

    def __init__(self, weights: str, events: int) -> None:
        self.weights, self.events = weights, events


def _reference(root: Path, seed: int) -> _Reference:
    # No threads before a fork.
    torch.set_num_threads(1)
    _write_rows(root.parent / ROWS)
    counted = root.with_suffix(".events")
    run = RunDirectory(root)
    if not run.exists():
        code = _forked(partial(_train, run, seed), count_into=counted, under=root.parent)
        assert code == DONE, f"the undisturbed training ended with {code}"
    return _Reference(load_checkpoint(run.checkpoint("last")).sha256, int(counted.read_text()))


def _write_rows(file: Path) -> None:
    labels_N = np.repeat(np.arange(3), (30, 20, 10))
    np.savez(file, X=np.random.default_rng(0).normal(labels_N[:, None], size=(60, 8)).astype(np.float32), y=labels_N)


def _check(outcomes: Outcomes, run: RunDirectory, code: int, expected: _Reference, case: str) -> None:
    """The run must be finished, bit-equal to the undisturbed one, with a whole log and nothing left behind."""
    if code != DONE:
        outcomes.fail(f"{case}: the last training ended with exit code {code}")
        return
    left = [path.name for path in (*run.root.parent.glob(".run*"), *run.root.rglob(".*"))]
    epochs = [record.epoch for record in run.log()]
    if load_checkpoint(run.checkpoint("last")).sha256 != expected.weights:
        outcomes.fail(f"{case}: other weights")
    elif epochs != list(range(len(epochs))) or len(epochs) != SETTINGS["train.epochs"]:
        outcomes.fail(f"{case}: the log has epochs {epochs}")
    elif left:
        outcomes.fail(f"{case}: left behind {left}")
    else:
        outcomes.add("finished bit-equal")


def _recipe(run: RunDirectory, seed: int) -> Recipe:
    rows = str(run.root.parent / ROWS)
    return load_recipe(
        "features/elf-ce-drw", {**SETTINGS, "data.train": rows, "data.cross_fitting": 0, "train.seed": seed}
    )


def _is_of_seed(run: RunDirectory, seed: int) -> bool:
    return run.exists() and run.recipe().train.seed == seed


def _train(run: RunDirectory, seed: int) -> None:
    train_recipe(_recipe(run, seed), run.root, resume=run.exists())


def _start_again(run: RunDirectory, seed: int) -> None:
    train_recipe(_recipe(run, seed), run.root, overwrite=True)


def _forked(action: Callable[[], None], **faults: Any) -> int:
    return _wait(_fork(action, **faults))


def _fork(
    action: Callable[[], None],
    *,
    kill_at: int | None = None,
    under: Path | None = None,
    count_into: Path | None = None,
    max_file_bytes: int | None = None,
) -> int:
    """Run an action in a forked process.

    Args:
        kill_at: number of the operation on files under `under` at which the process kills itself.
        count_into: file for the number of operations that the action took.
        max_file_bytes: writing beyond this size fails.
    """
    pid = os.fork()
    if pid:
        return pid
    code = BUG
    try:
        events = _count_events(str(under), kill_at)
        if max_file_bytes is not None:
            # The limit is for the files of the run, not for a file into which the campaign's output goes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
        action()
        code = DONE
        if count_into is not None:
            count_into.write_text(str(events[0]))
    except ElfnetError as error:
        code = BUG if "\n" in str(error) else REFUSED
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
    finally:
        os._exit(code)


def _count_events(under: str, kill_at: int | None) -> list[int]:
    events = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILE_EVENTS and arguments and str(arguments[0]).startswith(under):
            events[0] += 1
            if events[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    if under != "None":
        sys.addaudithook(hook)
    return events


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
