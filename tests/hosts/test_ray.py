"""A Ray cluster of two hosts, one of which is killed at work: nothing is lost, and nothing is done twice."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network_hosts import Host
from PIL import Image

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install -e '.[ray]'"),
]
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
BUNDLE = Path(__file__).parents[1] / "integration" / "stored" / "bundle.elfnet"
PORT = 6379
PATIENCE = 900.0
CLUSTER = """
import ray, sys, time
ray.init(address=sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.2)
"""


@pytest.fixture
def cluster(hosts: tuple[Host, Host], environment: dict[str, str]) -> Iterator[str]:
    """The address of a cluster; its head is on the first host."""
    first, second = hosts
    # Ray's sockets lie here, and their paths must be short.
    place = tempfile.mkdtemp(prefix="elfnet-ray-", dir="/tmp")
    address = f"{first.address}:{PORT}"
    common = ["--num-cpus", "1", "--object-store-memory", "100000000", "--disable-usage-stats", "--block"]
    head = ["start", "--head", "--port", PORT, "--include-dashboard", "false", "--temp-dir", place]
    words = [
        first.command([*RAY, *head, "--node-ip-address", first.address, *common]),
        second.command([*RAY, "start", "--address", address, "--node-ip-address", second.address, *common]),
    ]
    settings = {**environment, "RAY_worker_niceness": "0"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(words):
            with Path(place, f"host{number}.log").open("wb") as log:
                started.append(subprocess.Popen(command, env=settings, stdout=log, stderr=subprocess.STDOUT))
            if number == 0:
                _wait_until(lambda: _answers(first, address, settings), "the head of the cluster did not start")
        done = subprocess.run(
            first.command([sys.executable, "-c", CLUSTER, address]), env=settings, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, Path(place, "host1.log").read_text()
        yield address
    finally:
        for host in hosts:
            host.kill()
        for process in started:
            process.wait()
        shutil.rmtree(place, ignore_errors=True)


def _answers(host: Host, address: str, environment: dict[str, str]) -> bool:
    where, _, port = address.partition(":")
    knock = f"import socket; socket.create_connection(({where!r}, {port}), timeout=5)"
    done = subprocess.run(
        host.command([sys.executable, "-c", knock]), env=environment, capture_output=True, check=False
    )
    return done.returncode == 0


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.2)


def test_a_sweep_finishes(
    hosts: tuple[Host, Host],
    cluster: str,
    environment: dict[str, str],
    tiny_settings: dict[str, Any],
    tmp_path: Path,
) -> None:
    settings = {**tiny_settings, "train.epochs": 3, "train.batch_size": 8, "train.precision": "float32"}
    flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
    words = ["sweep", "digits/elf-ce-drw", "--over", "train.seed=0,1,2", "--out", tmp_path / "sweep"]
    command = hosts[0].command(
        [sys.executable, "-m", "elfnet", *words, "--backend", "ray", "--address", cluster, *flags, "--json"]
    )
    sweep = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A run of each host has begun.
    _wait_until(
        lambda: len([*tmp_path.glob("sweep/**/last.safetensors")]) >= 2 or sweep.poll() is not None, "no run began"
    )
    hosts[1].kill()
    output, errors = sweep.communicate(timeout=PATIENCE)
    assert sweep.returncode == 0, errors
    # Ray writes lines of its own about the lost host.
    ended = sorted(line for line in errors.splitlines() if line.startswith("seed="))
    assert ended == [f"seed={seed}: done" for seed in range(3)]
    assert [row["settings"]["train.seed"] for row in json.loads(output)["runs"]] == ["0", "1", "2"]
    for log in tmp_path.glob("sweep/**/log.jsonl"):
        assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == [0, 1, 2]


def test_predictions_are_complete_and_in_order(
    hosts: tuple[Host, Host], cluster: str, environment: dict[str, str], tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 32, 32), dtype=np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(photos / f"{number:04}.png")
    words = [sys.executable, "-m", "elfnet", "predict", BUNDLE, photos, "--batch", "4", "--operating-point", "full"]
    here = subprocess.run(
        [*map(str, words)], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    command = hosts[0].command([*words, "--backend", "ray", "--cpus", "1", "--address", cluster])
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as predicted,
    ):
        assert predicted.stdout is not None
        lines = [predicted.stdout.readline() for _ in range(100)]
        hosts[1].kill()
        lines += predicted.stdout.readlines()
    assert predicted.returncode == 0, (tmp_path / "errors").read_text()
    assert "".join(lines) == here.stdout
