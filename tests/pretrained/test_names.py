"""Names of models: an existing path first, then shipped networks, and the hub only where it is asked for."""

import hashlib
import shutil
import socket
from pathlib import Path

import pytest
import tomli_w

import elfnet
from elfnet.cli.main import main
from elfnet.errors import RequestError, WorkError
from elfnet.pretrained import catalogue
from elfnet.pretrained.names import find_model


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's `models/` with one network, a copy of the shipped one."""
    models = tmp_path / "models"
    models.mkdir()
    shipped = catalogue.shipped_networks()["clothing"]
    shutil.copy(shipped.path, models / "mine.onnx")
    facts = shipped.facts.model_dump(mode="json") | {"summary": "a copy"}
    (models / "mine.toml").write_text(tomli_w.dumps(facts))
    monkeypatch.setattr(catalogue, "IN_CLONE", models)
    return models


def test_the_shipped_network_is_small_and_complete() -> None:
    network = catalogue.shipped_networks()["clothing"]
    assert network.verified_path().stat().st_size < 2_500_000
    assert hashlib.sha256(network.path.read_bytes()).hexdigest() == network.facts.sha256
    assert network.samples is not None
    samples = sorted(network.samples.glob("*.jpg"))
    assert len(samples) == 10
    assert sum(sample.stat().st_size for sample in samples) < 100_000
    assert set(elfnet.load("clothing").class_names) == {sample.stem for sample in samples}


def test_an_existing_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model("clothing") == catalogue.PACKAGED / "clothing.onnx"
    Path("clothing").write_bytes(b"")
    assert find_model("clothing") == Path("clothing")


def test_networks_of_a_clone_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_model("mine") == folder / "mine.onnx"
    assert main(["models", "ls"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["clothing", "mine"]
    assert main(["models", "show", "mine", "--json"]) == 0
    assert '"a copy"' in capsys.readouterr().out
    assert main(["models", "show", "nothing"]) == 2
    assert "unknown network" in capsys.readouterr().err


def test_a_changed_file_is_refused(folder: Path) -> None:
    (folder / "mine.onnx").write_bytes((folder / "mine.onnx").read_bytes() + b" ")
    with pytest.raises(WorkError, match=r"mine\.onnx is damaged or was altered"):
        find_model("mine")
    (folder / "mine.onnx").unlink()
    with pytest.raises(WorkError, match="the file of network mine is missing"):
        find_model("mine")
    (folder / "mine.toml").write_text("summary = 1")
    with pytest.raises(WorkError, match=r"cannot read .*mine\.toml: "):
        catalogue.ShippedNetwork(folder / "mine.toml").facts  # noqa: B018


def test_a_misspelt_name_is_met_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="no file or network cloting; did you mean clothing"):
        find_model("cloting")
    with pytest.raises(RequestError, match="there is no bundle runs/elf"):
        elfnet.load("runs/elf.onnx")


@pytest.mark.parametrize("name", ["hub:clothing", "hub:a/b/c", "hub:a/b@", "hub:"])
def test_names_of_repositories_have_one_form(name: str) -> None:
    with pytest.raises(RequestError, match="is not the name of a repository; write hub:user/name"):
        find_model(name)


def test_predict_takes_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    network = catalogue.shipped_networks()["clothing"]
    assert main(["predict", "clothing", str(network.samples), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_serve_wants_a_bundle_or_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    assert "name a bundle or give --demo" in capsys.readouterr().err
    assert main(["serve", "clothing", "--demo"]) == 2
