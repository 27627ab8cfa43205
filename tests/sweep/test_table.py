"""The table of a sweep, from metrics files."""

from pathlib import Path
from typing import Any

import pytest

from elfnet import atomic
from elfnet.sweep.grid import SweepDirectory, expand_grid
from elfnet.sweep.table import sweep_table


def point(accuracy: float, few: float | None) -> dict[str, Any]:
    groups = {"many": accuracy, "medium": None, "few": few}
    return {"accuracy": accuracy, "accuracy_by_group": groups, "mean_cost": 0.5}


def test_a_figure_that_one_seed_lacks_is_not_averaged(tmp_path: Path) -> None:
    sweep = SweepDirectory(tmp_path)
    cells = expand_grid("digits/elf-ce-drw", {}, {"train.seed": ["0", "1"]})
    for cell, few in zip(cells, (0.25, None), strict=True):
        points = {"full": point(0.5, few), "s=0.5": point(0.4, few)}
        if few is None:
            points["s=0.9"] = point(0.6, few)
        atomic.write_json(sweep.run(cell).metrics_file, {"n": 4, "points": points})
    table = sweep_table(sweep, ["train.seed"], cells)
    (row,) = table["over_seeds"]
    assert set(row["figures"]) == {"full accuracy", "full many", "full cost"}
    assert row["figures"]["full accuracy"] == {"mean": pytest.approx(0.5), "deviation": pytest.approx(0)}
    # The same for thresholds: only those that all seeds have.
    assert table["by_s"] == [{"settings": {}, "seeds": 2, "by_s": {"0.5": {"accuracy": 0.4, "cost": 0.5}}}]
    assert "| 50.0 ± 0.0 | 50.0 ± 0.0 | – | – | 0.500 ± 0.000 | 2 |" in (tmp_path / "table.md").read_text()
