"""The wheel, installed without the source tree: it predicts, serves, trains, and names the extras that are missing."""

import os
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _run(*command: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, env=environment)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    # The environment's own setuptools: nothing is downloaded.
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    _run(*command, str(out), str(ROOT), cwd=out)
    (built,) = out.glob("elfnet-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with elfnet from the wheel; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder), cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    # Behind the wheel's own files on the path. An editable elfnet there is a finder, which .pth files would install.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def _elfnet(installed: Path, *words: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run(str(installed / "bin" / "python"), "-m", "elfnet", *words, cwd=cwd, check=check)


@pytest.mark.slow
def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for part in (
        "pretrained/networks/clothing.onnx",
        "pretrained/networks/clothing/hat.jpg",
        "serve/page/",
        "py.typed",
    ):
        assert any(name.startswith(f"elfnet/{part}") for name in names), part
    assert not [name for name in names if not name.startswith(("elfnet/", "elfnet-"))]


@pytest.mark.slow
def test_predict_and_train_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = _run(str(installed / "bin" / "python"), "-c", "import elfnet; print(elfnet.__file__)", cwd=tmp_path).stdout
    assert where.startswith(str(installed))
    (samples,) = installed.glob("lib/python*/site-packages/elfnet/pretrained/networks/clothing")
    answers = _elfnet(installed, "predict", "clothing", str(samples), "--json", cwd=tmp_path).stdout
    assert len(answers.splitlines()) == 10
    tiny = [
        "--train.epochs",
        "1",
        "--data.largest",
        "24",
        "--model.backbone",
        "resnet8",
        "--train.precision",
        "float32",
        "--out",
        "run",
    ]
    _elfnet(installed, "train", *tiny, cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
def test_serve_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "bin" / "python"), "-m", "elfnet", "serve", "--demo", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stderr is not None
            line = next(text for text in server.stderr if text.startswith("serving "))
            # It listens before it says so; the connection waits until a worker has loaded the model.
            page = urllib.request.urlopen(line.split(" at ")[1].split()[0], timeout=600).read().decode()
            assert "<html" in page
        finally:
            server.terminate()
            server.communicate()


@pytest.mark.slow
def test_a_missing_extra_is_named(installed: Path, tmp_path: Path) -> None:
    """The package torch is hidden by an empty file that refuses to be imported."""
    hide = "import sys; sys.modules['torch'] = None; from elfnet.cli.main import main; sys.exit(main(['train']))"
    done = _run(str(installed / "bin" / "python"), "-c", hide, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "needs torch: pip install 'elfnet[train]'" in done.stderr
