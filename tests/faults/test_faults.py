"""A small piece of every part of the campaign; `make torture` runs all of it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import fault_api
import fault_fuzz
import fault_soak
from fault_case import Outcomes, damaged
from torture import PARTS, main, merge, run_part, table

STORED = Path(__file__).parents[1] / "integration" / "stored"


@pytest.mark.parametrize(("name", "count"), [("images", 140), ("files", 132), ("http", 40), ("interrupts", 10)])
def test_nothing_fails(name: str, count: int) -> None:
    found = run_part(name, seed=22, count=count)
    assert found["failures"] == []
    assert found["cases"] == count
    assert "FAILED" not in found["outcomes"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("kills", 2), ("disk", 1), ("concurrency", 1)])
def test_trainings_end_as_undisturbed_ones(name: str, count: int, tmp_path: Path) -> None:
    """In a process of its own: trainings are forked, and this process has threads."""
    file = tmp_path / "found.json"
    words = [sys.executable, str(Path(__file__).with_name("torture.py")), "part", name]
    subprocess.run([*words, "--seed", "22", "--count", str(count), "--out", str(file)], check=True, capture_output=True)
    found = json.loads(file.read_text())
    assert found["failures"] == []
    assert found["outcomes"]["finished bit-equal"] == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "package"), [("soak", 8, "elfnet"), ("fuzz", 2, "atheris"), ("api", 3, "schemathesis")]
)
def test_parts_that_start_programs(name: str, count: int, package: str, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install -e '.[torture]'")
    file = tmp_path / "found.json"
    words = [sys.executable, str(Path(__file__).with_name("torture.py")), "part", name]
    subprocess.run([*words, "--count", str(count), "--out", str(file)], check=True, capture_output=True)
    found = json.loads(file.read_text())
    assert found["failures"] == []
    assert found["cases"] > 10


API = """
___________________________ OPTIONS /v1/operating-point ____________________________
1. Test Case ID: hEGorF

- ST205 Allow header mismatch

Reproduce with:

    curl ...

Test cases:
  1,159 generated, 1 found 1 unique failures
"""


def test_a_response_that_is_not_documented_is_a_failure() -> None:
    found = fault_api._outcomes(subprocess.CompletedProcess([], 1, API, ""))
    assert found.counts == {"FAILED": 1, "as documented": 1158}
    assert found.failures == ["OPTIONS /v1/operating-point: 1. Test Case ID: hEGorF - ST205 Allow header mismatch"]
    assert fault_api._outcomes(subprocess.CompletedProcess([], 2, "", "no network")).counts == {"FAILED": 1}


def test_an_input_that_fuzzing_finds_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "found-crash").write_bytes(b"PK")
    errors = "=== Uncaught Python exception: ===\nKeyError: 'a'\nstat::number_of_executed_units: 77\n"
    outcomes = Outcomes()
    fault_fuzz._count(outcomes, "zip", subprocess.CompletedProcess([], 77, "", errors), tmp_path)
    assert outcomes.counts == {"FAILED": 1, "zip read or refused": 77}
    assert outcomes.failures == ["zip: KeyError: 'a'; the input, shortened: b'PK'"]
    fault_fuzz._count(outcomes, "zip", subprocess.CompletedProcess([], 1, "", "no such module"), tmp_path)
    assert outcomes.counts["FAILED"] == 2


def test_memory_that_grows_is_a_failure() -> None:
    flat, grown = Outcomes(), Outcomes()
    fault_soak._check_memory(flat, [0] * 10 + [200 * 2**20] * 30)
    fault_soak._check_memory(grown, [number * 2**20 for number in range(100)])
    assert flat.failures == []
    assert flat.figures["megabytes in the last quarter"] == 200
    assert grown.failures == ["the memory grew from 37.0 to 87.0 MB"]


def test_damage_is_a_function_of_the_seed() -> None:
    first, second, other = (damaged(bytes(100), np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first == second != other


def test_pieces_are_merged_and_failures_decide_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bad(seed: int, count: int, _directory: Path) -> Outcomes:
        outcomes = Outcomes()
        outcomes.fail(f"seed {seed},\ncount {count}")
        outcomes.add("refused")
        return outcomes

    monkeypatch.setattr("fault_images.run", bad)
    pieces = [run_part("images", seed, 2) for seed in (3, 4)]
    merged = merge(pieces)["parts"]["images"]
    assert (merged["seeds"], merged["cases"]) == ([3, 4], 4)
    assert merged["outcomes"] == {"FAILED": 2, "refused": 2}
    assert merged["failures"] == ["seed 3, count 2", "seed 4, count 2"]
    assert table(merge(pieces)).splitlines()[2] == "| damaged image files | 4 of 40,000 | 4 | 2 | 2 refused |"
    # All pieces of the campaign are there already, so that none is run.
    for name, (_, _, counts) in PARTS.items():
        for number in range(len(counts)):
            piece = tmp_path / f"{name}-seed{7 + number}-count1.json"
            piece.write_text(json.dumps({**pieces[0], "part": name}))
    out = tmp_path / "torture.json"
    assert main(["campaign", "--seed", "7", "--scale", "1e-9", "--work", str(tmp_path), "--out", str(out)]) == 1
    assert set(json.loads(out.read_text())["parts"]) == set(PARTS)
    assert "| damaged image files | 8 of 40,000 | 8 | 4 |" in capsys.readouterr().out


@contextmanager
def _served(tmp_path: Path, *words: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    token = tmp_path / "token"
    token.write_text("secret")
    command = [sys.executable, "-m", "elfnet", "serve", str(STORED / "bundle.elfnet"), "--port", "0", *words]
    with subprocess.Popen([*command, "--token-file", str(token)], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            yield int(line.partition("127.0.0.1:")[2].partition("/")[0]), process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def _ask(port: int, method: str, body: str = "") -> dict[str, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request(method, "/v1/operating-point", body, {"Authorization": "Bearer secret"})
        response = connection.getresponse()
        found: dict[str, str] = json.loads(response.read())
        assert response.status == 200, found
        return found


def _workers(pid: int) -> set[int]:
    """Ids of the worker processes; multiprocessing starts one more, which tracks resources."""
    children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return {child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to find the workers")
def test_killed_workers_are_replaced_and_keep_the_operating_point(tmp_path: Path) -> None:
    with _served(tmp_path, "--workers", "2") as (port, process):
        # The connection waits until a worker has started.
        assert _ask(port, "GET")["operating_point"] == "full"
        workers = _workers(process.pid)
        assert len(workers) == 2
        assert _ask(port, "PUT", '{"operating_point": "economic"}')["operating_point"] == "economic"
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        # Whichever worker answers, it was started after the change.
        assert _ask(port, "GET")["operating_point"] == "economic"
        assert not _workers(process.pid) & workers
    assert process.returncode == 0


def test_a_service_that_cannot_start_ends_in_one_line() -> None:
    command = [sys.executable, "-m", "elfnet", "serve", str(STORED / "bundle.elfnet"), "--port", "0"]
    done = subprocess.run([*command, "--backend", "nothing"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("elfnet: unknown backend 'nothing'")


def test_the_figures_of_the_documentation_are_those_of_the_campaign() -> None:
    root = Path(__file__).parents[2]
    merged = json.loads((root / "benchmarks" / "results" / "torture.json").read_text())
    page = (root / "docs" / "reliability.md").read_text()
    rows = dict(re.findall(r"^\| .* \| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert set(rows) == set(PARTS)
    for name, shown in rows.items():
        part = merged["parts"].get(name)
        expected = "not run yet"
        if part is not None:
            expected = f"{part['cases']:,}, {part['outcomes'].get('FAILED', 0)} failed"
        assert shown == expected, name
