"""Every mistake gets one readable line that names the thing and the way out, and nothing that was there is lost."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


def one_line(result: tuple[int, str, str], code: int) -> str:
    found, out, error = result
    assert out == ""
    assert error.count("\n") == 1, error
    assert error.startswith("elfnet: ")
    assert "Traceback" not in error
    assert found == code
    return error


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "digits/elf-cee"], "did you mean 'digits/elf-ce'"),
        (["train", "--train.epoch", "3"], "did you mean --train.epochs"),
        (["train", "--lr", "3"], "did you mean --train.lr"),
        (["train", "--root", "3"], "did you mean --data.root?"),
        (["train", "--device", "cpu"], "did you mean --train.device?"),
        (["train", "--train.learning_rate", "3"], "it is called --train.lr"),
        (["train", "--licence", "mit"], "it is called --model.weights_licence"),
        (["train", "--data", "photos"], "it is called --data.root"),
        (["train", "--train.gradient_clip", "1"], "gradients are not clipped"),
        (["train", "--output-dir", "runs"], "the run directory is --out"),
        (
            ["train", "--method", "ce"],
            "part of the name of the recipe, such as elfnet train folder/ce; see 'elfnet rec",
        ),
        (["train", "--refit.methods", "crt"], "did you mean --refit.method?"),
        (["train", "--num-classes", "3"], "the classes follow from the data"),
        (["train", "--metric", "f1"], "see 'elfnet train --help'"),
        # These verbs have no settings.
        (["calibrate", "runs/first", "--budget", "5ms"], "did you mean --budgets?"),
        (["predict", "runs/first", "--resolution", "64"], "see 'elfnet predict --help'"),
        (["train", "--train.epochs", "many"], "train.epochs=many"),
        (["train", "--train.epochs", "0"], "train.epochs=0"),
        (["train", "--data.source", "mnist"], "unknown data source 'mnist'"),
        (["train", "--model.backbone", "resnet321"], "did you mean 'resnet32'"),
        (["train", "--criterion.loss", "ldam"], "set model.head=cosine"),
        (["train", "--train.drw_start", "200"], "is never reached"),
        (["train", "--train.device", "tpu"], "train.device=tpu"),
        (["train", "--exits.train_threshold", "1.5"], "1.5"),
        (["train", "--exits.train_threshold", "lots"], "lots"),
        (["train", "--exits.search", "0.5,1.5"], "'1.5' is not between 0 and 1"),
        (["train", "--data.profile", "counts"], "needs data.counts"),
        (["train", "--data.profile", "counts", "--data.counts", "5,5"], "10"),
        (["train", "--data.largest", "5000"], "lower largest"),
        (["train", "--data.calibration_per_class", "170"], "calibration"),
        (["train", "nowhere.toml"], "nowhere.toml"),
        (["train", "--resume", "--out", "nowhere"], "no run in nowhere"),
        (["evaluate"], "required"),
        (["evaluate", "nowhere"], "no run directory nowhere"),
        (["evaluate", "."], "is not a run directory"),
        (["report", "nowhere"], "no run directory nowhere"),
        (["recipes", "show"], "name the recipe"),
        (["recipes", "ls", "digits"], "takes no name"),
        (["models", "ls", "clothing"], "takes no name"),
        (["data", "ls", "digits"], "takes no name"),
        (
            ["data", "describe", "mnist"],
            "'mnist' is neither a path that exists nor a data set; check the path, or choose",
        ),
        (["data", "describe", "digit"], "did you mean 'digits'?"),
        (["data", "describe", "photos/fruit"], "'photos/fruit' is neither a path that exists nor a data set"),
        (["data", "describe", "digits/cee"], "unknown recipe 'digits/cee'; did you mean 'digits/ce'?"),
        (["train", "nothere"], "unknown recipe 'nothere'; 'elfnet recipes ls' lists all"),
        (["train", "../"], "elfnet train folder --data.root ../"),
        (["train", "folder", "."], "unknown argument '.'; for images in a folder, give --data.root ."),
        (["data", "prepare"], "name a data set"),
    ],
    ids=lambda value: "_".join(value)[:60] if isinstance(value, list) else "",
)
def test_wrong_requests(
    elfnet: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = elfnet(*words)
    assert expected in one_line(result, result[0])
    assert result[0] == (1 if words == ["train", "nowhere.toml"] else 2)
    # Nothing was begun.
    assert not any((tmp_path / "runs").rglob("*.safetensors"))


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("flags", "expected", "code"),
    [
        (["--budgets", "0.001"], "below the cheapest exit", 2),
        (["--budgets", "half"], "--budgets", 2),
        (["--budgets", ",,"], "',,' has no budget; give one or more", 2),
        (["--budgets", "5ms,5.0ms"], "budget 5ms is given twice; give it once", 2),
        (["--epsilon", "0.0001"], "needs at least", 2),
        (["--delta", "2"], "delta=2", 2),
        (["--scales", "best"], "--scales", 2),
        (["--cost", "nowhere.json"], "cannot read nowhere.json", 1),
    ],
)
def test_calibration_that_cannot_be(elfnet: Call, run: Path, flags: list[str], expected: str, code: int) -> None:
    before = (run / "policy.json").read_bytes()
    assert expected in one_line(elfnet("calibrate", run, *flags), code)
    assert (run / "policy.json").read_bytes() == before


def test_truncated_checkpoint(elfnet: Call, run: Path) -> None:
    file = run / "checkpoints" / "last.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert "truncated or damaged" in one_line(elfnet("evaluate", run, "--again"), 1)


def test_altered_checkpoint(elfnet: Call, run: Path) -> None:
    file = run / "checkpoints" / "last.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    assert "was altered" in one_line(elfnet("evaluate", run, "--again"), 1)


def test_checkpoint_of_another_network(elfnet: Call, run: Path) -> None:
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("resnet8", "resnet14"))
    assert "is for another network" in one_line(elfnet("evaluate", run, "--again"), 1)


def test_pickle_in_place_of_a_checkpoint_is_not_run(elfnet: Call, run: Path, tmp_path: Path) -> None:
    import pickle

    class Bomb:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
            return Path.touch, (tmp_path / "executed",)

    (run / "checkpoints" / "last.safetensors").write_bytes(pickle.dumps(Bomb()))
    one_line(elfnet("evaluate", run, "--again"), 1)
    assert not (tmp_path / "executed").exists()


def test_altered_table_is_refused(elfnet: Call, run: Path) -> None:
    file = run / "tables" / "test.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    one_line(elfnet("evaluate", run), 1)


def test_policy_of_another_checkpoint(elfnet: Call, run: Path) -> None:
    policy = json.loads((run / "policy.json").read_text())
    policy["checkpoint_sha256"] = "0" * 64
    (run / "policy.json").write_text(json.dumps(policy))
    one_line(elfnet("evaluate", run), 1)


def test_damaged_run_json(elfnet: Call, run: Path) -> None:
    (run / "run.json").write_text("{")
    assert "is damaged" in one_line(elfnet("evaluate", run), 1)


@pytest.mark.parametrize("threshold", ["1.2", "-0.1", "0.5.5", "nan"])
def test_threshold_out_of_range(elfnet: Call, run: Path, threshold: str) -> None:
    assert threshold in one_line(elfnet("evaluate", run, f"--threshold={threshold}"), 2)


def test_unfinished_run_is_not_calibrated(elfnet: Call, run: Path) -> None:
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 3\n", "epochs = 4\n"))
    before = (run / "policy.json").read_bytes()
    assert "has 3 of 4 epochs" in one_line(elfnet("calibrate", run), 2)
    assert (run / "policy.json").read_bytes() == before


@pytest.mark.parametrize("scale", ["nan", "inf", "0", "-2"])
@pytest.mark.parametrize("verb", ["evaluate", "calibrate"])
def test_a_scale_that_is_none(elfnet: Call, run: Path, verb: str, scale: str) -> None:
    assert f"--scale: {scale} is not a number above 0" in one_line(elfnet(verb, run, f"--scale={scale}"), 2)


def test_a_run_without_its_last_checkpoint_is_not_silently_begun_again(elfnet: Call, run: Path) -> None:
    before = (run / "log.jsonl").read_bytes()
    (run / "checkpoints" / "last.safetensors").unlink()
    assert "last.safetensors is missing; put it back" in one_line(elfnet("train", "--resume", "--out", run), 1)
    assert (run / "log.jsonl").read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_standard_output_on_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "elfnet.cli.main", "recipes", "ls"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot write to standard output" in done.stderr


def test_unknown_split(elfnet: Call, run: Path) -> None:
    assert "choose from" in one_line(elfnet("evaluate", run, "--split", "validation"), 2)


def test_report_without_calibration(elfnet: Call, run: Path) -> None:
    (run / "policy.json").unlink()
    (run / "metrics.json").unlink()
    assert "elfnet calibrate" in one_line(elfnet("report", run), 2)


def test_overwriting_by_a_request_that_is_refused_loses_nothing(elfnet: Call, run: Path) -> None:
    before = sorted(path for path in run.rglob("*") if path.is_file())
    for wrong in (["--data.largest", "5000"], ["--exits.train_threshold", "7"], ["--model.backbone", "resnet7"]):
        one_line(elfnet("train", run / "recipe.toml", "--out", run, "--overwrite", *wrong), 2)
    assert sorted(path for path in run.rglob("*") if path.is_file()) == before


@pytest.mark.slow
def test_full_disk_keeps_what_was_there(run: Path) -> None:
    """A real limit on file size, in a process of its own: the checkpoint cannot be written, the old one stays."""
    before = (run / "checkpoints" / "last.safetensors").read_bytes()
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 3\n", "epochs = 4\n"))
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        "from elfnet.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, "train", "--resume", "--out", str(run), "--no-report"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("elfnet: cannot write")
    assert "the checkpoint after 3 epochs is intact" in done.stderr
    assert "Traceback" not in done.stderr
    assert (run / "checkpoints" / "last.safetensors").read_bytes() == before
    assert not list((run / "checkpoints").glob(".*"))


@pytest.mark.slow
def test_interrupted_run_says_how_to_go_on(tiny_recipe: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elfnet.cli.main", "train", str(tiny_recipe), "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "--resume" in rest.splitlines()[-1]
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("report", "elfnet: interrupted\n"),
        ("sweep", "elfnet: interrupted; progress is saved; run the same command to resume\n"),
    ],
)
def test_an_interruption_promises_only_what_the_verb_does(
    elfnet: Call, monkeypatch: pytest.MonkeyPatch, verb: str, expected: str
) -> None:
    def interrupted(_words: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"elfnet.cli.{verb}.run", interrupted)
    assert elfnet(verb) == (130, "", expected)
