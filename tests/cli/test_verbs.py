"""What every verb does when all is well."""

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.cli.main import VERBS
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import replay
from elfnet.export import read_run

Call = Callable[..., tuple[int, str, str]]


def test_without_a_verb_it_says_what_there_is(elfnet: Call) -> None:
    code, out, _ = elfnet()
    assert code == 0
    assert all(verb in out for verb in VERBS)


def test_version(elfnet: Call) -> None:
    code, out, _ = elfnet("--version")
    assert (code, out.split()[0]) == (0, "elfnet")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    help_text = import_module(f"elfnet.cli.{verb}").parser().format_help()
    assert f"example: elfnet {verb} " in help_text
    # A service answers over HTTP, and a completion script is for a shell.
    assert "--json" in help_text or verb in ("serve", "completion")


def test_train_leaves_everything_a_run_has(finished: Path) -> None:
    for name in ("recipe.toml", "run.json", "log.jsonl", "policy.json", "metrics.json", "report.html"):
        assert (finished / name).stat().st_size > 0
    assert {file.name for file in (finished / "checkpoints").iterdir()} == {"last.safetensors", "best.safetensors"}
    assert {file.name for file in (finished / "tables").iterdir()} == {"calibration.safetensors", "test.safetensors"}


def test_train_json_has_the_results(printed_results: dict[str, Any], finished: Path) -> None:
    assert printed_results["points"]["full"]["n"] == 60
    assert Path(printed_results["report"]) == finished / "report.html"


@pytest.mark.slow
@pytest.mark.usefixtures("without_drawing")
def test_train_measures_times_with_onnx_runtime(
    elfnet: Call,
    tiny_recipe: Path,
    measure_times: Callable[..., MeasuredCost],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_run, "times_of_run", measure_times)
    code, out, _ = elfnet("train", tiny_recipe, "--train.epochs", 1, "--out", tmp_path / "run")
    assert code == 0
    assert "ms" in out
    times = MeasuredCost.open(tmp_path / "run" / "times.json")
    assert (times.backend, times.batch, len(times.stages)) == ("onnxruntime", 1, 4)
    assert min(times.stages) > 0


def test_train_on_features_speaks_of_rows(elfnet: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "codes.npz", X=rng.normal(size=(90, 6)).astype(np.float32), y=np.arange(90) % 3)
    words = ("--data.train", tmp_path / "codes.npz", "--train.epochs", 1, "--train.compile", "off", "--no-report")
    code, _, error = elfnet("train", "features", *words, "--out", tmp_path / "run")
    assert code == 0, error
    assert " rows of 3 classes " in error
    assert "images" not in error


@pytest.mark.usefixtures("without_drawing")
def test_train_twice_is_refused_and_overwrite_and_resume_work(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    code, _, error = elfnet("train", run / "recipe.toml", "--out", run)
    assert code == 2
    assert f"give --overwrite or another --out, or continue it with: elfnet train --resume --out {run}" in error
    code, out, _ = elfnet("train", "--resume", "--out", run)
    assert code == 0
    for words in ("full", f"report: {run / 'report.html'}", "model card: "):
        assert words in out
    assert elfnet("train", run / "recipe.toml", "--out", run, "--overwrite", "--no-report")[0] == 0
    assert not (run / "report.html").exists()


def test_evaluate_prints_groups_and_cost(elfnet: Call, finished: Path) -> None:
    code, out, _ = elfnet("evaluate", finished, "--per-class")
    assert code == 0
    for word in ("many", "medium", "few", "mean cost", "worst cost", "full", "economic", "calibration error"):
        assert word in out


def test_evaluate_at_thresholds(elfnet: Call, finished: Path) -> None:
    code, out, _ = elfnet("evaluate", finished, "--threshold", "0.5", "--threshold", "2/C", "--json")
    results = json.loads(out)
    assert code == 0
    assert list(results["points"]) == ["full", "s=0.5", "s=2/C"]
    costs = [point["mean_cost"] for point in results["points"].values()]
    # Full depth runs no early head, so it is the plain backbone; a lower threshold is never dearer.
    assert costs[0] == pytest.approx(1.0)
    assert costs[1] >= costs[2]


def test_evaluate_with_other_group_boundaries(elfnet: Call, finished: Path) -> None:
    def sizes(*flags: object) -> dict[str, int]:
        results = json.loads(elfnet("evaluate", finished, "--json", *flags)[1])
        by_group: dict[str, int] = results["points"]["full"]["n_by_group"]
        return by_group

    assert sizes("--many-above", 5, "--few-below", 1) == {"many": 60, "medium": 0, "few": 0}
    assert sizes("--many-above", 500, "--few-below", 400) == {"many": 0, "medium": 0, "few": 60}


def test_evaluate_best_checkpoint_has_a_table_of_its_own(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    assert elfnet("evaluate", run, "--checkpoint", "best", "--split", "calibration")[0] == 0
    assert (run / "tables" / "calibration-best.safetensors").is_file()


def test_compare_a_run_with_itself(elfnet: Call, finished: Path) -> None:
    code, out, _ = elfnet("evaluate", finished, "--against", finished, "--json")
    assert code == 0
    assert json.loads(out)["differences"]["all"] == {"estimate": 0.0, "low": 0.0, "high": 0.0, "n": 60}


def test_both_runs_of_a_comparison_are_measured_alike(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for run in (first, second):
        shutil.copytree(finished, run)
    before = [(run / "tables" / "test.safetensors").stat().st_ino for run in (first, second)]
    assert elfnet("evaluate", first, "--against", second, "--again", "--json")[0] == 0
    after = [(run / "tables" / "test.safetensors").stat().st_ino for run in (first, second)]
    assert all(new != old for new, old in zip(after, before, strict=True))


def test_calibrate_writes_the_policy(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    code, out, _ = elfnet("calibrate", run, "--search", "0.3,0.6", "--json")
    assert code == 0
    points = json.loads(out)["family"]["points"]
    assert [point["name"] for point in points[:3]] == ["full", "accurate", "economic"]
    assert [point["name"] for point in points if point["rule"] == "line search" and not point["same_as"]] == [
        "s=0.3",
        "s=0.6",
    ]
    assert {point["rule"] for point in points} >= {"full depth", "line search", "budget", "floor", "geometric"}
    assert json.loads((run / "policy.json").read_text())["split"] == "calibration"


def test_calibrate_for_budgets_and_promises(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    flags = ["--budgets", "0.5,0.9", "--floors", "2", "--epsilon", "0.3", "--delta", "0.2", "--scales", "own"]
    code, out, _ = elfnet("calibrate", run, *flags, "--combine", "off")
    assert code == 0
    for words in ("budget=0.5", "budget=0.9", "within-2", "worst-group-within-2", "risk=0.3", "with probability 0.8"):
        assert words in out
    assert "s=0.5" not in out
    assert "baseline points: elfnet calibrate RUN --all" in out
    family = json.loads((run / "policy.json").read_text())
    assert [point["promise"]["epsilon"] for point in family["points"] if point["promise"]] == [0.3]
    cost = {"stages": [1.0] * 4, "heads": [0.1] * 4, "plain": 4.1, "backend": "torch", "batch": 1, "threads": 1}
    (tmp_path / "cost.json").write_text(json.dumps(cost))
    code, out, _ = elfnet("calibrate", run, "--cost", tmp_path / "cost.json", "--json")
    assert code == 0
    assert json.loads(out)["family"]["cost"] == pytest.approx([1.1 / 4.1, 2.2 / 4.1, 3.3 / 4.1, 4.4 / 4.1])
    assert json.loads(out)["test"]["cost_unit"].startswith("time relative to the plain backbone")


def test_calibrate_adjusts_logits(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    code, out, _ = elfnet("calibrate", run, "--logit-adjustment", "on")
    assert code == 0
    assert "logits: adjusted, tau by exit" in out
    family = Family.open(run / "policy.json")
    assert family.adjustment is not None
    metrics = json.loads((run / "metrics.json").read_text())
    expected = replay(ExitTable.open(run / "tables" / "test.safetensors"), family.point("full").policy)
    labels_N = ExitTable.open(run / "tables" / "test.safetensors").labels_N
    assert metrics["points"]["full"]["accuracy"] == pytest.approx(float((expected.prediction_N == labels_N).mean()))
    # Against the same run without it, at full depth: the comparison is of what the operating points answer.
    code, out, _ = elfnet("evaluate", run, "--against", finished, "--json")
    assert code == 0
    plain = json.loads((finished / "metrics.json").read_text())["points"]["full"]["accuracy"]
    difference = json.loads(out)["differences"]["all"]["estimate"]
    assert difference == pytest.approx(metrics["points"]["full"]["accuracy"] - plain)


@pytest.mark.usefixtures("without_drawing")
def test_report_to_another_place(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "other")
    code, out, _ = elfnet("report", finished, tmp_path / "other", "--out", tmp_path / "two.html")
    assert code == 0
    assert str(tmp_path / "two.html") in out
    assert (tmp_path / "two.html").is_file()


def test_recipes(elfnet: Call) -> None:
    code, out, _ = elfnet("recipes", "ls")
    assert code == 0
    for data in ("digits", "cifar10-lt", "cifar100-lt"):
        for method in ("ce", "ce-drw", "focal", "focal-drw", "ldam", "ldam-drw", "elf-ce", "elf-focal", "elf-ldam"):
            assert f"{data}/{method} " in out
    code, out, _ = elfnet("recipes", "show", "cifar10-lt/elf-ldam-drw", "--train.epochs", 40, "--json")
    assert json.loads(out)["train"]["epochs"] == 40


def test_data(elfnet: Call) -> None:
    sources = [line.split()[0] for line in elfnet("data", "ls")[1].splitlines()]
    assert sources == ["arrays", "cifar10", "cifar100", "digits", "features", "folder", "hub", "lists"]
    assert "1,797 training images" in elfnet("data", "prepare", "digits")[1]
    code, out, _ = elfnet("data", "describe", "digits/ce", "--data.ratio", 10, "--json")
    assert code == 0
    assert json.loads(out)["examples"]["test"] == 500
    assert "imbalance ratio" in elfnet("data", "describe", "digits")[1]
