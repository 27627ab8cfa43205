"""metrics.json as a typed value."""

from pathlib import Path
from typing import Any

import pytest
from run_files import change_json

from elfnet.errors import WorkError
from elfnet.run.directory import RunDirectory
from elfnet.run.results import CurvePoint, ExitQuality, PointResults, Results

ACCURACY: dict[str, float | None] = {"many": 0.75, "medium": None, "few": 0.5}
POINT = PointResults(
    n=4,
    n_by_group={"many": 2, "medium": 0, "few": 2},
    accuracy=0.625,
    accuracy_by_group=ACCURACY,
    accuracy_by_class=(0.75, None, 0.5),
    balanced_accuracy=0.625,
    macro_f1=0.4,
    mean_cost=0.5,
    worst_cost=1.0,
    exit_share=(0.25, 0.75),
    exit_share_by_group={"many": (0.5, 0.5), "medium": None, "few": (0.0, 1.0)},
    confusion=((2, 0, 0), (0, 0, 0), (1, 0, 1)),
    rule="budget",
    thresholds=(0.5,),
)
RESULTS = Results(
    split="test",
    n=4,
    checkpoint_sha256="ab" * 32,
    cost_unit="multiply-adds",
    plain_multiply_adds=100,
    points={"full": POINT, "budget=0.5": POINT.model_copy(update={"confusion": None})},
    exits=(
        ExitQuality(
            exit=1, cost=0.5, accuracy=0.5, accuracy_by_group=ACCURACY, mean_confidence=0.5, calibration_error=0.1
        ),
    ),
    curve=(
        CurvePoint(
            threshold=0.5,
            mean_cost=0.5,
            accuracy=0.5,
            accuracy_by_group=ACCURACY,
            exit_share=(0.25, 0.75),
            efficient=True,
        ),
    ),
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.save_results(RESULTS)
    return run


def test_what_was_written_is_read_back(run: RunDirectory) -> None:
    assert run.results() == RESULTS


def test_a_file_without_a_hash_is_read(run: RunDirectory) -> None:
    change_json(run.metrics_file, lambda _: None)
    assert run.results() == RESULTS


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("macro_f1", None, "macro_f1"),
        ("accuracy", 1.5, r"points\.full\.accuracy: Input should be less than or equal to 1"),
        ("accuracy_by_group", {"many": 0.5}, "the groups are many, not many, medium, few"),
        ("thresholds", ["0.5"], "valid number"),
    ],
)
def test_damaged_results_name_the_command_that_writes_them_again(
    run: RunDirectory, field: str, value: Any, why: str
) -> None:
    change_json(run.metrics_file, lambda content: content["points"]["full"].update({field: value}))
    with pytest.raises(
        WorkError, match=rf"metrics\.json is damaged .*{why}.*run 'elfnet calibrate {run.root}' again"
    ) as caught:
        run.results()
    assert "\n" not in str(caught.value)
