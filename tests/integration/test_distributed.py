"""Two processes compute what one computes with the whole batch."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file

from elfnet.evaluate.run import evaluate_run
from elfnet.run.checkpoint import load_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe

SCRIPT = Path(__file__).parent / "distributed_job.py"
CASES = ("mask", "drop", "accumulate", "balanced", "distilled", "experts", "mixup", "cutmix", "cmo", "less work")


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("distributed_job", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left behind; started once, since starting takes longest."""
    directory = tmp_path_factory.mktemp("two")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(directory)],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env=_environment(),
    )
    assert done.returncode == 0, done.stderr
    return directory


def _found(directory: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / f"found-{rank}.json").read_text())
    return found


@pytest.fixture(scope="module")
def one(job: ModuleType) -> dict[str, Any]:
    """The same in one process."""
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    return {name: job.trajectory(fabric, **{**case, "accumulate": 1}) for name, case in job.CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_weights_follow_the_same_trajectory(two: Path, one: dict[str, Any], case: str) -> None:
    """Across the switch to class weights, with a last batch of which one process gets nothing."""
    weights, _, _ = one[case]
    for rank in range(2):
        theirs = load_file(two / f"{case}-{rank}.safetensors")["weights"]
        torch.testing.assert_close(theirs, torch.stack(weights), rtol=0, atol=1e-10)
    assert float((weights[2] - weights[1]).abs().max()) > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_the_log_is_that_of_one_process(two: Path, one: dict[str, Any], case: str) -> None:
    _, log, _ = one[case]
    assert [record["weights"] for record in log] == ["none", "none", "inverse", "inverse"]
    for rank in range(2):
        for theirs, ours in zip(_found(two, rank)[case]["log"], log, strict=True):
            assert theirs.keys() == ours.keys()
            for name, value in ours.items():
                assert _alike(theirs[name], value), name


def _alike(theirs: Any, ours: Any) -> bool:
    if isinstance(ours, list):
        return all(_alike(*pair) for pair in zip(theirs, ours, strict=True))
    if isinstance(ours, str) or ours is None:
        return bool(theirs == ours)
    return bool(theirs == pytest.approx(ours, rel=1e-9, abs=1e-12))


def test_processes_agree_on_a_temperature_that_rose(two: Path, one: dict[str, Any]) -> None:
    """Each sees its own share only; where they differed, weights would drift apart unseen."""
    temperatures = [record["distil_temperature"] for record in one["distilled"][1]]
    assert temperatures[0] < temperatures[-1]
    for rank in range(2):
        assert [record["distil_temperature"] for record in _found(two, rank)["distilled"]["log"]] == temperatures


def test_one_process_ran_out_of_examples_while_the_other_had_some(two: Path) -> None:
    """Else the test above would not show that dropping does not hang."""
    first, second = (_found(two, rank)["drop"]["reached"] for rank in range(2))
    assert any(a and not b for a, b in zip(first, second, strict=True))
    assert any(b and not a for a, b in zip(first, second, strict=True))


def test_processes_prune_by_what_all_of_them_saw(one: dict[str, Any]) -> None:
    """Else the case would not show that the history is gathered."""
    shown = [record["examples"] for record in one["less work"][1]]
    assert min(shown) < shown[0] == shown[-1]


def test_only_the_first_process_writes_and_all_share_a_refusal(two: Path) -> None:
    assert [record.epoch for record in RunDirectory(two / "two").log()] == [0, 1]
    assert [_found(two, rank)["first"] for rank in range(2)] == [True, False]
    for rank in range(2):
        assert "holds a run already" in _found(two, rank)["refusal"]


def test_evaluation_counts_every_example_once(two: Path) -> None:
    """The score that two processes logged is what one finds with the weights they saved."""
    run = RunDirectory(two / "two")
    table = evaluate_run(run, "calibration")
    prediction_N = table.logits_NEC[:, -1].argmax(axis=1)
    recalls = [(prediction_N[table.labels_N == c] == c).mean() for c in range(10)]
    assert run.log()[-1].calibration_balanced_accuracy == pytest.approx(np.mean(recalls), abs=1e-9)
    assert run.info().devices == 2


def test_a_run_goes_on_with_another_number_of_processes(two: Path, job: ModuleType) -> None:
    run = RunDirectory(two / "stopped")
    assert load_checkpoint(run.checkpoint("last")).epochs_done == 1
    train_recipe(job.recipe(), run.root, resume=True)
    assert [record.epoch for record in run.log()] == [0, 1]
    assert run.log()[0].loss == RunDirectory(two / "two").log()[0].loss
    assert run.log()[1].loss == pytest.approx(RunDirectory(two / "two").log()[1].loss, rel=0.1)


def test_a_second_stage_is_that_of_one_process(two: Path, job: ModuleType, tmp_path: Path) -> None:
    """Batch norm is in evaluation mode there, so that nothing depends on who gets which examples."""
    ours = train_recipe(job.second_stage(two / "two"), tmp_path / "one")
    theirs = RunDirectory(two / "second")
    weights, other = (load_checkpoint(run.checkpoint("last")).weights for run in (ours, theirs))
    begun = load_checkpoint(RunDirectory(two / "two").checkpoint("last")).weights
    for name, tensor in weights.items():
        torch.testing.assert_close(other[name], tensor, rtol=0, atol=1e-5)
        assert torch.equal(tensor, other[name]) or "classifier" in name
        assert torch.equal(tensor, begun.get(name, torch.zeros(()))) is ("classifier" not in name)
    for one, two_ in zip(ours.log(), theirs.log(), strict=True):
        assert one.loss == pytest.approx(two_.loss, rel=1e-5)
        assert one.calibration_balanced_accuracy == two_.calibration_balanced_accuracy


def test_both_stages_of_one_run(two: Path) -> None:
    """The second stage starts in processes that have trained the first."""
    run = RunDirectory(two / "both")
    assert [record.stage for record in run.log()] == ["training"] * 2 + ["balanced"] * 2
    weights, begun = (load_checkpoint(RunDirectory(two / name).checkpoint("last")).weights for name in ("both", "two"))
    for name, tensor in weights.items():
        assert torch.equal(tensor, begun.get(name, torch.zeros(()))) is ("classifier" not in name)


@pytest.mark.slow
def test_a_killed_worker_is_restarted_and_the_run_ends_as_undisturbed(two: Path, tmp_path: Path) -> None:
    """torchrun starts the processes again; they go on after the last checkpoint."""
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, runpy, signal, sys\n"
        "from pathlib import Path\n"
        "from elfnet.train.run import train_recipe\n"
        f"recipe = runpy.run_path({str(SCRIPT)!r})['recipe']()\n"
        "marker = Path(sys.argv[1]) / 'killed'\n"
        "def kill(done):\n"
        "    if os.environ['RANK'] == '1' and done == 1 and not marker.exists():\n"
        "        marker.touch()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return False\n"
        "train_recipe(recipe, Path(sys.argv[1]) / 'run', stop_after=kill)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    done = subprocess.run(
        [*command, "--standalone", str(script), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env=_environment(),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").is_file()
    ends = [load_checkpoint(RunDirectory(root).checkpoint("last")) for root in (tmp_path / "run", two / "two")]
    assert ends[0].sha256 == ends[1].sha256
    assert tensors_sha256(ends[0].optimiser) == tensors_sha256(ends[1].optimiser)


@pytest.mark.slow
def test_a_node_that_does_not_come_is_told_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elfnet", "train", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, "--num-nodes", "2", "--timeout", "2"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=_environment() | {"MASTER_ADDR": "127.0.0.1"},
    )
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("elfnet: the 2 processes of this run did not all meet at 127.0.0.1:")
    assert "within 2 s" in line
    assert not (tmp_path / "run").exists()
