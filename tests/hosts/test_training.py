"""One training on two hosts."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from network_hosts import Host

from elfnet.run.checkpoint import Checkpoint, load_checkpoint
from elfnet.run.directory import RunDirectory

pytestmark = [pytest.mark.hosts, pytest.mark.slow]
COMMAND = [sys.executable, "-m", "elfnet"]
PORT = 29_500
PATIENCE = 900.0
Process = subprocess.Popen[str]


def _words(recipe: str, out: Path, settings: Mapping[str, Any], *options: object) -> list[str]:
    flags = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    return [*COMMAND, "train", recipe, "--out", str(out), "--no-report", *flags, *map(str, options)]


def _start(host: Host, rank: int, first: Host, words: list[str], environment: dict[str, str]) -> Process:
    """Start a process of the training on a host."""
    where = {"MASTER_ADDR": first.address, "MASTER_PORT": str(PORT), "NODE_RANK": str(rank)}
    return subprocess.Popen(
        host.command(words), env={**environment, **where}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _ended(process: Process) -> tuple[int, str]:
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors


def _train_on(hosts: tuple[Host, Host], words: list[str], environment: dict[str, str]) -> None:
    processes = [_start(host, rank, hosts[0], words, environment) for rank, host in enumerate(hosts)]
    for process in processes:
        code, errors = _ended(process)
        assert code == 0, errors


def _train_here(words: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def _last(root: Path) -> Checkpoint:
    return load_checkpoint(RunDirectory(root).checkpoint("last"))


@pytest.fixture
def settings(tiny_settings: dict[str, Any]) -> dict[str, Any]:
    return {**tiny_settings, "train.epochs": 2, "train.threads": 1, "train.precision": "float32"}


def test_two_hosts_are_two_processes_bit_for_bit(
    hosts: tuple[Host, Host], environment: dict[str, str], settings: dict[str, Any], tmp_path: Path
) -> None:
    nodes, devices = ("--num-nodes", 2, "--devices", 1, "--timeout", 300), ("--devices", 2)
    _train_on(hosts, _words("digits/elf-ce-drw", tmp_path / "hosts", settings, *nodes), environment)
    _train_here(_words("digits/elf-ce-drw", tmp_path / "processes", settings, *devices))
    ours, theirs = _last(tmp_path / "hosts"), _last(tmp_path / "processes")
    assert ours.sha256 == theirs.sha256
    logs = [[record.loss for record in RunDirectory(tmp_path / name).log()] for name in ("hosts", "processes")]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 2


def test_a_host_that_is_cut_off(
    hosts: tuple[Host, Host], environment: dict[str, str], settings: dict[str, Any], tmp_path: Path
) -> None:
    """Both say that the other does not answer; either alone finishes the run, and always in the same way."""
    run = RunDirectory(tmp_path / "run")
    # Steps of two images: an epoch has many of them, so that the cut comes in the middle of one.
    slow = {**settings, "train.epochs": 4, "train.batch_size": 2}
    words = _words("digits/elf-ce-drw", run.root, slow, "--num-nodes", 2, "--devices", 1, "--timeout", 20)
    processes = [_start(host, rank, hosts[0], words, environment) for rank, host in enumerate(hosts)]
    _wait_for_epoch(run, processes)
    hosts[1].unplug()
    for process in processes:
        code, errors = _ended(process)
        line = errors.splitlines()[-1]
        assert code == 1, errors
        assert line.startswith("elfnet: another process of this run did not answer within 20 s ("), errors
        assert line.endswith("see its output, then continue with --resume")
    assert 1 <= _last(run.root).epochs_done < 4
    shutil.copytree(run.root, tmp_path / "again")
    for root in (run.root, tmp_path / "again"):
        _train_here(hosts[1].command([*COMMAND, "train", "--resume", "--out", root, "--no-report"]))
    assert _last(run.root).sha256 == _last(tmp_path / "again").sha256
    assert [record.epoch for record in run.log()] == [0, 1, 2, 3]


def _wait_for_epoch(run: RunDirectory, processes: list[Process]) -> None:
    end = time.monotonic() + PATIENCE
    while not run.checkpoint("last").is_file():
        assert time.monotonic() < end, "no epoch was finished"
        assert all(process.poll() is None for process in processes), [process.communicate() for process in processes]
        time.sleep(0.05)
