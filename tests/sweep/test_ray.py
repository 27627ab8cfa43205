"""A real Ray on this machine: runs of a sweep, predictions for a folder, and nothing left behind.

Each test runs in a process of its own, as Ray keeps threads and variables in the one that starts it.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from elfnet.calibrate.run import calibrate_run
from elfnet.cli.main import main
from elfnet.errors import RequestError
from elfnet.ray_cluster import in_short, ray_cluster
from elfnet.recipe.load import load_recipe
from elfnet.sweep import run as sweep_run
from elfnet.train.logging import Silent
from elfnet.train.run import train_recipe

needs_ray = [
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install -e '.[ray]'"),
]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

# A sweep whose runs are a stand-in: the run of seed 1 fails, that of seed 2 ends its worker.
SWEEP = """
import json, sys
from pathlib import Path
from elfnet.errors import WorkError
from elfnet.sweep import run, run_sweep

TRAIN = '''
import json, os, signal, sys
from pathlib import Path
run, seed = Path(sys.argv[1]), int(sys.argv[2])
print("threads", os.environ["OMP_NUM_THREADS"], flush=True)
if seed == 1:
    sys.exit("elfnet: no luck")
if seed == 2:
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()  # what started us is gone, and so must we
run.mkdir(parents=True)
point = {"accuracy": 0.5, "accuracy_by_group": {"many": 1.0, "medium": None, "few": 0.25}, "mean_cost": 0.75}
point |= {"n": 40, "n_by_group": {"many": 20, "medium": 0, "few": 20}, "accuracy_by_class": [0.5], "rule": "fixed"}
point |= {"balanced_accuracy": 0.5, "macro_f1": 0.5, "worst_cost": 1.0, "exit_share": [1.0], "thresholds": []}
point |= {"exit_share_by_group": {"many": [1.0], "medium": None, "few": [1.0]}, "confusion": None}
results = {"split": "test", "n": 40, "checkpoint_sha256": "0" * 64, "cost_unit": "multiply-adds"}
results |= {"plain_multiply_adds": 100, "points": {"full": point}, "exits": [], "curve": []}
(run / "metrics.json").write_text(json.dumps(results))
'''

def command(sweep, cell):
    return [sys.executable, "-I", "-c", TRAIN, str(sweep.run(cell).root.resolve()), cell.values["train.seed"]]

run.train_command = command
told = {}
try:
    run_sweep(
        "digits/elf-ce-drw", ["train.seed=0,1,2,3"], "sweep", backend="ray",
        on_finished=lambda cell, failure: told.update({cell.name: failure}),
    )
except WorkError as error:
    print(json.dumps({"told": told, "error": str(error)}))
"""


@pytest.fixture
def run_apart(tmp_path: Path) -> Iterator[Run]:
    """Run Python with a Ray of its own; afterwards none of its processes may be there."""
    # Ray's sockets lie here, and their paths must be short.
    place = Path(tempfile.mkdtemp(prefix="elfnet-ray-", dir=os.environ.get("TMPDIR", "/tmp")))

    def run(*words: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "RAY_TMPDIR": str(place), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    yield run
    left = _processes_with(place)
    shutil.rmtree(place, ignore_errors=True)
    assert not left, f"processes of Ray left running: {left}"


def _processes_with(place: Path) -> list[str]:
    """Ids of the processes with a path in their command; none where the system does not tell."""
    commands = Path("/proc").glob("[0-9]*/cmdline")
    return [command.parent.name for command in commands if os.fsencode(place) in _content(command)]


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


class TestSweep:
    pytestmark = needs_ray

    def test_runs_that_fail_or_are_lost_do_not_stop_the_others(self, run_apart: Run, tmp_path: Path) -> None:
        done = run_apart("-c", SWEEP)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["told"]["seed=0"] is None
        assert found["told"]["seed=3"] is None
        assert found["told"]["seed=1"] == "no luck"
        assert found["told"]["seed=2"].startswith("its process on the cluster was lost 3 times: ")
        assert "\n" not in found["told"]["seed=2"]
        assert found["error"].startswith("2 of 4 runs failed")
        assert (tmp_path / "sweep" / "output" / "seed=1.txt").read_text() == "threads 1\nelfnet: no luck\n"
        table = json.loads((tmp_path / "sweep" / "table.json").read_text())
        assert [row["settings"]["train.seed"] for row in table["runs"]] == ["0", "3"]
        assert not _processes_with(tmp_path), "the command of a worker that was killed went on"

    @pytest.mark.slow
    def test_real_runs_by_the_command(self, run_apart: Run, tiny_settings: dict[str, Any]) -> None:
        settings = {**tiny_settings, "train.epochs": 1}
        flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
        words = ["sweep", "digits/elf-ce-drw", "--over", "train.seed=0,1", "--out", "sweep", "--backend", "ray"]
        done = run_apart("-m", "elfnet", *words, *flags, "--json")
        assert done.returncode == 0, done.stderr
        assert [row["n"] for row in json.loads(done.stdout)["runs"]] == [60, 60]
        assert sorted(done.stderr.splitlines()) == ["seed=0: done", "seed=1: done"]
        again = run_apart("-m", "elfnet", *words, *flags, "--json")
        assert (again.returncode, again.stderr, again.stdout) == (0, "", done.stdout)

    def test_a_cluster_that_does_not_answer_is_told_in_one_line(self, run_apart: Run) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            words = ["sweep", "digits/elf-ce-drw", "--over", "train.seed=0", "--backend", "ray", "--address", address]
            done = run_apart("-m", "elfnet", *words)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"elfnet: no Ray cluster could be reached at {address} (")


class TestPredict:
    pytestmark = needs_ray

    def test_a_folder_gives_the_same_lines_in_the_same_order(
        self, run_apart: Run, tiny_settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        recipe = load_recipe("digits/elf-ce-drw", {**tiny_settings, "train.epochs": 1})
        calibrate_run(train_recipe(recipe, tmp_path / "run", observer=Silent()))
        (tmp_path / "photos").mkdir()
        pixels = np.random.default_rng(0).integers(0, 256, (37, 32, 32), dtype=np.uint8)
        for number, image in enumerate(pixels):
            Image.fromarray(image).save(tmp_path / "photos" / f"{number:02}.png")
        # After a whole part of four batches, so that batches are of the same images here and there.
        (tmp_path / "photos" / "36.png").write_text("no image")
        words = ["predict", "run", "photos", "--batch", "3", "--top", "2", "--operating-point", "full"]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            assert main([*words, "--threads", "1"]) == 1
        here = capsys.readouterr()
        done = run_apart("-m", "elfnet", *words, "--backend", "ray", "--cpus", "1")
        assert done.returncode == 1
        assert len(done.stdout.splitlines()) == 36
        assert done.stdout == here.out
        assert done.stderr == here.err


def test_what_cannot_be_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="--cpus 0 and --gpus 0 must be"), ray_cluster(None, cpus=0):
        pass
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RequestError, match="--backend ray needs ray"), ray_cluster(None, cpus=1):
        pass


def test_a_task_that_is_cancelled_ends_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    waits = subprocess.Popen.wait

    def interrupted(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        if process not in begun:
            begun.append(process)
            raise KeyboardInterrupt
        return waits(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep_run._train([sys.executable, "-I", "-c", "import time; time.sleep(1000)"], 1)
    assert begun[0].returncode == -15


def test_errors_are_told_in_one_line() -> None:
    error = RuntimeError("\n  lost \nTraceback ...")
    assert in_short(error) == "lost"
    assert in_short(EOFError()) == "EOFError"
