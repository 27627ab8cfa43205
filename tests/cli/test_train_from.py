"""`elfnet train --from RUN`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.cli.main import main
from elfnet.run.directory import RunDirectory

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def flags(tiny_settings: dict[str, Any]) -> list[str]:
    return [word for name, value in {**tiny_settings, "train.epochs": 2}.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="module")
def source(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished plain run; do not write into it."""
    out = tmp_path_factory.mktemp("runs") / "ce"
    assert main(["train", "digits/ce", "--out", str(out), "--no-report", *flags]) == 0
    return out


def refused(result: tuple[int, str, str]) -> str:
    code, out, error = result
    assert (code, out, error.count("\n")) == (2, "", 1), error
    return error


@pytest.mark.usefixtures("without_drawing")
def test_trains_calibrates_and_reports(elfnet: Call, source: Path, flags: list[str], tmp_path: Path) -> None:
    out = tmp_path / "crt"
    code, printed, said = elfnet("train", "digits/crt", "--from", source, "--out", out, "--json", *flags)
    assert code == 0
    assert f"started from {source} (2 epochs); only the classifiers learn" in said
    assert json.loads(printed)["points"]["full"]["n"] == 60
    assert (out / "report.html").is_file()
    assert RunDirectory(out).recipe().refit.run == str(source)


def test_says_what_was_chosen_and_which_neighbourhoods_were_smaller(
    elfnet: Call, source: Path, flags: list[str], tmp_path: Path
) -> None:
    for method, expected in (("tau-norm", "tau by exit "), ("smote", "smaller neighbourhoods than 9 in ")):
        words = ["--no-report", "--refit.neighbours", "9", "--train.weight_decay", "0.1", *flags]
        code, _, said = elfnet("train", f"digits/{method}", "--from", source, "--out", tmp_path / method, *words)
        assert code == 0
        assert said.count(expected) == 1, said


def test_a_second_stage_refuses_flags_that_it_does_not_use(
    elfnet: Call, source: Path, flags: list[str], tmp_path: Path
) -> None:
    words = ["train", "digits/balanced", "--from", source, "--out", tmp_path / "run"]
    for flag, value, instead in (
        ("train.epochs", "2", "use --refit.epochs"),
        ("train.lr", "0.2", "use --refit.lr"),
        ("train.ema_decay", "0.9", "leave it out"),
        ("criterion.loss", "focal", "leave it out"),
    ):
        line = refused(elfnet(*words, f"--{flag}", value))
        assert (
            f"--{flag} {value} has no effect on a second stage (refit.method=balanced) with --from; {instead}" in line
        )
    unused = ("--train.epochs", "--train.lr")
    used = [word for k, word in enumerate(flags) if not {flags[k], flags[max(k - 1, 0)]} & {*unused}]
    code, _, said = elfnet(*words, "--refit.epochs", "1", "--no-report", *used)
    assert code == 0, said
    assert "epoch 1/1" in said
    assert "balanced stage" in said


def test_calibrate_chooses_the_classifiers_and_evaluate_uses_them(
    elfnet: Call, source: Path, flags: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "balanced"
    used = [word for k, word in enumerate(flags) if "--train.epochs" not in (flags[k], flags[max(k - 1, 0)])]
    used = [word for k, word in enumerate(used) if "--train.lr" not in (used[k], used[max(k - 1, 0)])]
    words = ["train", "digits/balanced", "--from", source, "--out", out, "--refit.epochs", "1", "--no-report"]
    assert elfnet(*words, *used)[0] == 0
    assert "logit adjustment is off" in refused(elfnet("calibrate", out, "--classifiers", "first-stage"))
    assert "no second stage" in refused(elfnet("calibrate", source, "--classifiers", "first-stage"))
    code, shown, _ = elfnet("calibrate", out, "--logit-adjustment", "auto")
    assert code == 0
    assert "classifiers: of the second stage" in shown
    code, shown, _ = elfnet("calibrate", out, "--classifiers", "first-stage", "--logit-adjustment", "auto")
    assert code == 0
    assert "classifiers: of the first stage with adjusted logits: as requested" in shown
    assert "first stage with adjusted logits" in (out / "MODEL_CARD.md").read_text()
    assert "shows the former points" not in shown
    (out / "report.html").touch()
    code, shown, _ = elfnet("calibrate", out, "--classifiers", "first-stage", "--logit-adjustment", "auto")
    assert f"shows the former points; write it anew with: elfnet report {out}" in " ".join(shown.split())

    def accuracy(run: Path, *more: str) -> dict[str, Any]:
        code, printed, said = elfnet("evaluate", run, "--json", *more)
        assert code == 0, said
        content = json.loads(printed)
        assert isinstance(content, dict)
        return content

    chosen = accuracy(out)
    hashes = {which: accuracy(out, "--checkpoint", which)["checkpoint_sha256"] for which in ("last", "first-stage")}
    assert chosen["checkpoint_sha256"] == hashes["first-stage"] != hashes["last"]
    unadjusted = accuracy(out, "--checkpoint", "last")["points"]["full"]["accuracy"]
    assert unadjusted == accuracy(out, "--checkpoint", "last", "--threshold", "0.9")["points"]["full"]["accuracy"]
    compared = accuracy(out, "--against", str(source))
    assert compared["n"] == 60


def test_resume_does_not_need_from(elfnet: Call, source: Path, flags: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["train", "digits/logit-adjustment", "--out", out, "--no-report", *flags]
    assert elfnet(*words, "--from", source)[0] == 0
    for more in (["--resume"], ["--resume", "--from", tmp_path / "moved"]):
        assert elfnet(*words, *more)[0] == 0
    assert elfnet("train", "--resume", "--out", out, "--no-report")[0] == 0


def test_wrong_requests(elfnet: Call, source: Path, flags: list[str], tmp_path: Path) -> None:
    out = ["--out", tmp_path / "out", *flags]
    assert "name it with --from RUN" in refused(elfnet("train", "digits/crt", *out))
    assert "does not start from a run" in refused(elfnet("train", "digits/ce", "--from", source, *out))
    assert "no run directory" in refused(elfnet("train", "digits/lws", "--from", tmp_path / "nowhere", *out))
    other = [*out, "--data.ratio", "7"]
    assert "data.ratio=4.0, and this recipe data.ratio=7.0" in refused(
        elfnet("train", "digits/tau-norm", "--from", source, *other)
    )
    both = ["--from", source, "--refit.run", "other"]
    assert "differ; give --from alone" in refused(elfnet("train", "digits/tau-norm", *both, *out))
    assert not (tmp_path / "out").exists()
