"""A real sweep: two runs of the command, one of which fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from elfnet.errors import WorkError
from elfnet.sweep import run_sweep


@pytest.mark.slow
def test_runs_are_trained_and_measured(tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    settings = {**tiny_settings, "train.epochs": 1, "train.precision": "float32"}
    del settings["train.lr"]  # swept
    with pytest.raises(WorkError, match=r"1 of 2 runs failed, the first being lr=1e30 \(.*not finite.*\)"):
        run_sweep("digits/elf-ce-drw", ["train.lr=0.1,1e30"], tmp_path / "sweep", settings=settings, jobs=2)
    (row,) = json.loads((tmp_path / "sweep" / "table.json").read_text())["runs"]
    assert row["settings"] == {"train.lr": "0.1"}
    assert row["n"] == 60
    assert 0 <= row["figures"]["full accuracy"] <= 1
    assert row["figures"]["economic cost"] <= row["figures"]["full cost"]
