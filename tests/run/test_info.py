"""run.json as a typed value."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_files import change_json, data_info, run_info

from elfnet.errors import WorkError
from elfnet.recipe.load import load_recipe
from elfnet.run.directory import RunDirectory
from elfnet.run.info import FitInfo, NetworkInfo, RefitInfo, RunInfo, TauInfo, TauScore, WeightsInfo

STORED = Path(__file__).parents[1] / "integration" / "stored" / "begun-run"
SCORE = TauScore(tau=0.5, balanced_accuracy=0.75)
REFIT = RefitInfo(
    method="tau-norm",
    run="runs/first",
    checkpoint_sha256="ab" * 32,
    epochs=3,
    tau=0.5,
    score_before=0.7,
    scores=(SCORE,),
    exits=(TauInfo(tau=0.5, score_before=0.7, scores=(SCORE,)),),
    calibration_balanced_accuracy=0.75,
    summary="tau-norm of runs/first",
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.create(load_recipe("digits/elf-ce-drw"), run_info())
    return run


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"devices": 2, "nodes": 3},
        {"weights": WeightsInfo(file="resnet.pth", sha256="0" * 64, summary="loaded 3 of 3 tensors")},
        {"network": NetworkInfo(given=True, signature="given network", first_weights_sha256="1" * 64)},
        {"refit": REFIT},
        {"training_of": "ce", "epochs_taken_over": 4},
    ],
    ids=lambda changes: ",".join(changes) or "plain",
)
def test_what_was_written_is_read_back(run: RunDirectory, changes: dict[str, Any]) -> None:
    info = run_info(**changes)
    run.create(run.recipe(), info)
    assert run.info() == info
    # A section that a run does not have is not written.
    content = json.loads(run.info_file.read_text())
    assert set(content) == {*info.model_fields_set, "sha256"}


def test_the_file_of_version_0_1_0_is_read() -> None:
    info = RunDirectory(STORED).info()
    assert "sha256" not in json.loads((STORED / "run.json").read_text())
    assert (info.versions["elfnet"], info.machine.threads, info.data.classes) == ("0.1.0", 1, 10)
    assert info.multiply_adds.stages[1] == 4_718_592


def test_a_refit_of_version_0_1_0_is_read(run: RunDirectory) -> None:
    refit = {**REFIT.to_json(), "how": "tau-norm"}
    del refit["method"]
    change_json(run.info_file, lambda content: content.update(refit=refit))
    assert run.info().refit == REFIT


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda content: content["data"].pop("calibration"), r"data\.calibration: Field required"),
        (lambda content: content["data"]["class_names"].pop(), "the numbers of class names and counts differ"),
        (lambda content: content["multiply_adds"].pop("heads"), r"multiply_adds\.heads: Field required"),
        (lambda content: content["machine"].update(threads="2"), r"machine\.threads: Input should be a valid integer"),
        (lambda content: content.update(data=3), "data: "),
        (lambda content: content.update(sha257=3), "sha257: Extra inputs are not permitted"),
    ],
)
def test_damaged_info_is_one_line(run: RunDirectory, change: Callable[[dict[str, Any]], object], why: str) -> None:
    change_json(run.info_file, change)
    with pytest.raises(WorkError, match=rf"run\.json is damaged \(.*{why}.*\); restore it from a copy") as caught:
        run.info()
    assert "\n" not in str(caught.value)


def test_info_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        run_info().devices = 2


def test_other_data_is_refused() -> None:
    info = run_info(data=data_info(fingerprint="a"))
    info.require_same_data("a", where="runs/first")
    with pytest.raises(WorkError, match=r"^the data is not what the run in runs/first was trained on; restore it, or"):
        info.require_same_data("b", where="runs/first")


def test_a_fit_without_tau_says_nothing_about_one() -> None:
    assert FitInfo(smaller_neighbourhoods={"cat": 2}).to_json() == {"smaller_neighbourhoods": {"cat": 2}}
    assert RunInfo.model_validate_json(run_info(refit=REFIT).model_dump_json(exclude_unset=True)).refit == REFIT
