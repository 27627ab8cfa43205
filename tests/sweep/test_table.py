"""The table of a sweep, from metrics files."""

from pathlib import Path

import pytest

from elfnet.run.results import PointResults, Results
from elfnet.sweep.grid import SweepDirectory, expand_grid
from elfnet.sweep.table import sweep_table


def point(accuracy: float, few: float | None) -> PointResults:
    return PointResults(
        n=4,
        n_by_group={"many": 4, "medium": 0, "few": 0},
        accuracy=accuracy,
        accuracy_by_group={"many": accuracy, "medium": None, "few": few},
        accuracy_by_class=(accuracy,),
        balanced_accuracy=accuracy,
        macro_f1=accuracy,
        mean_cost=0.5,
        worst_cost=1.0,
        exit_share=(1.0,),
        exit_share_by_group={"many": (1.0,), "medium": None, "few": None},
        confusion=None,
        rule="fixed",
        thresholds=(),
    )


def test_a_figure_that_one_seed_lacks_is_not_averaged(tmp_path: Path) -> None:
    sweep = SweepDirectory(tmp_path)
    cells = expand_grid("digits/elf-ce-drw", {}, {"train.seed": ["0", "1"]})
    for cell, few in zip(cells, (0.25, None), strict=True):
        points = {"full": point(0.5, few), "s=0.5": point(0.4, few)}
        if few is None:
            points["s=0.9"] = point(0.6, few)
        results = Results(
            split="test",
            n=4,
            checkpoint_sha256="0" * 64,
            cost_unit="multiply-adds",
            plain_multiply_adds=100,
            points=points,
            exits=(),
            curve=(),
        )
        sweep.run(cell).save_results(results)
    table = sweep_table(sweep, ["train.seed"], cells)
    (row,) = table["over_seeds"]
    assert set(row["figures"]) == {"full accuracy", "full many", "full cost"}
    assert row["figures"]["full accuracy"] == {"mean": pytest.approx(0.5), "deviation": pytest.approx(0)}
    # The same for thresholds: only those that all seeds have.
    assert table["by_s"] == [{"settings": {}, "seeds": 2, "by_s": {"0.5": {"accuracy": 0.4, "cost": 0.5}}}]
    assert "| 50.0 ± 0.0 | 50.0 ± 0.0 | – | – | 0.500 ± 0.000 | 2 |" in (tmp_path / "table.md").read_text()
