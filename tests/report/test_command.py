"""elfnet report, from the command line."""

import json
from pathlib import Path

import pytest

from elfnet.cli.report import run
from elfnet.run.directory import RunDirectory


@pytest.mark.usefixtures("undrawn", "two_figures")
def test_report_and_figures(plain_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures = tmp_path / "report.html", tmp_path / "figures"
    assert run([str(plain_run.root), "--out", str(out), "--figures", str(figures), "--no-images", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == str(out)
    assert sorted(said["figures"]) == sorted(str(file) for file in figures.iterdir())
    assert len(said["figures"]) == 4
    assert said["left_out"] == []


@pytest.mark.usefixtures("undrawn")
def test_only_the_report_by_default(
    digits_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert run([str(digits_run.root), "--out", str(out), "--no-images"]) == 0
    assert capsys.readouterr().out.split() == ["report:", str(out)]
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
