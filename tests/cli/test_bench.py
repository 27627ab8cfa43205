"""elfnet bench inference: what it prints, writes and refuses; its times are not tested."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.cli.bench import _points_by_reason
from elfnet.evaluate.policy_replay import replay
from elfnet.evaluate.run import evaluate_run
from elfnet.run.directory import open_run

Call = Callable[..., tuple[int, str, str]]
# The network itself: graphs would have to be exported first, which takes longer than everything else here.
QUICK = ("--backend", "torch", "--threads", 1, "--rounds", 1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (6, 32, 32), dtype=np.uint8)):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def one_line(result: tuple[int, str, str], code: int) -> str:
    found, out, error = result
    assert (found, out) == (code, "")
    assert error.count("\n") == 1, error
    assert error.startswith("elfnet: ")
    return error


def test_figures_of_a_run(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    costs = tmp_path / "times.json"
    words = ("--batch", "1,5", "--points", "full,budget=0.3", "--costs", costs, "--json")
    code, out, error = elfnet("bench", "inference", finished, *QUICK, *words)
    assert (code, error) == (0, "")
    found = json.loads(out)
    assert set(found) == {"stages", "points", "exits"}
    run = open_run(finished)
    family = Family.open(run.policy_file)
    assert [(entry["batch"], entry["point"]) for entry in found["points"]] == [
        (batch, point) for batch in (1, 5) for point in ("full", "budget=0.3")
    ]
    table = evaluate_run(run, "test")
    assert table.examples == 60
    for entry in found["points"]:
        assert 0 < entry["p50"] <= entry["p95"] <= entry["p99"]
        assert entry["overhead"] > 0
        assert sum(entry["exit_share"]) == pytest.approx(1)
        if entry["batch"] == 1:
            # All sixty test images, so the shares are those of the exit table.
            expected = replay(table, family.point(entry["point"]).policy)
            assert entry["exit_share"] == pytest.approx((np.bincount(expected.exit_N, minlength=4) / 60).tolist())
            assert entry["mean_cost"] == pytest.approx(expected.cost_N.mean())
    assert found["points"][0]["exit_share"] == [0, 0, 0, 1]
    assert found["points"][1]["exit_share"][3] < 1
    written = MeasuredCost.open(costs)
    assert written == MeasuredCost.from_dict(found["stages"])
    assert (written.backend, written.batch, written.threads) == ("torch", 5, 1)
    assert set(found["exits"]) == {"full", "budget=0.3"}
    assert found["exits"]["full"][0] == "exit 1 is not used: no image may exit there, its head is not run"
    assert all("exit 1 " in reasons[0] and len(reasons) == 3 for reasons in found["exits"].values())


def test_tables_for_people(elfnet: Call, finished: Path, photos: Path) -> None:
    code, out, _ = elfnet(
        "bench", "inference", finished, "--images", photos, *QUICK, "--batch", "2", "--points", "full"
    )
    assert code == 0
    assert "Stages on torch, batch 2" in out
    assert "Operating points" in out
    assert "full: exit 3 is not used" in out


def test_a_reason_that_holds_for_several_points_stands_there_once() -> None:
    uses = {"full": ["no", "nor this"], "accurate": ["no"], "economic": ["pays"]}
    assert _points_by_reason(uses) == {"no": ["full", "accurate"], "nor this": ["full"], "pays": ["economic"]}


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--batch", "one"], 2, "--batch 'one' must be integers separated by commas"),
        (["--batch", "0,1"], 2, "--batch '0,1' must be batch sizes of 1 or more"),
        (["--batch", ","], 2, "--batch ',' must be batch sizes of 1 or more"),
        (["--rounds", "0"], 2, "--rounds 0 must be 1 or more"),
        (["--batch", "61"], 2, "60 images are fewer than a batch of 61"),
        (["--points", "ful"], 2, "unknown operating point 'ful'"),
        (["--backend", "abacus"], 2, "unknown backend 'abacus'"),
        (["--threads", "0"], 2, "threads=0 must be at least 1"),
        (["--images", "nowhere.png"], 1, "there is no image nowhere.png"),
        (["--variant", "int8"], 2, "--variant needs a bundle, but"),
    ],
)
def test_wrong_requests(elfnet: Call, finished: Path, words: list[str], code: int, expected: str) -> None:
    # What is given twice counts as it was given last.
    assert expected in one_line(elfnet("bench", "inference", finished, *QUICK, *words), code)


def test_what_is_no_model(elfnet: Call, tmp_path: Path, photos: Path) -> None:
    assert "a bundle contains no images; give some with --images" in one_line(
        elfnet("bench", "inference", tmp_path / "a.elfnet"), 2
    )
    words = ("bench", "inference", tmp_path / "a.elfnet", "--images", photos)
    assert "there is no bundle" in one_line(elfnet(*words), 2)
    assert "training" in one_line(elfnet("bench", "training", tmp_path), 2)


def test_a_damaged_image_stops_the_benchmark(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    """It would be missing from the figures."""
    (tmp_path / "a.png").write_bytes(b"hello")
    message = one_line(elfnet("bench", "inference", finished, "--images", tmp_path, *QUICK), 1)
    assert "a.png is not an image or is damaged" in message


def test_a_number_among_the_points_is_a_budget(elfnet: Call, finished: Path) -> None:
    words = ("--batch", "1", "--points", "0.3", "--json")
    code, out, error = elfnet("bench", "inference", finished, *QUICK, *words)
    assert (code, error) == (0, "")
    within = Family.open(open_run(finished).policy_file).for_budget(0.3).name
    assert [entry["point"] for entry in json.loads(out)["points"]] == [within]
