"""The folder for browsers: what it holds, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elfnet.cli.main import main
from elfnet.errors import RequestError
from elfnet.export.web import RUNTIME_FILES, SHARED, WebRuntime, read_web_runtime, write_site
from elfnet.inference.bundle.one_file import OneFile, open_one_file

with_bundle = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An npm folder with other content in the place of the runtime."""
    folder = tmp_path / "node_modules" / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    described = {"name": "onnxruntime-web", "version": "1.2.3", "license": "MIT"}
    (folder / "package.json").write_text(json.dumps(described))
    for name in RUNTIME_FILES:
        (folder / "dist" / name).write_bytes(name.encode())
    return folder


@pytest.fixture
def bundle(write_file: Callable[..., Path]) -> OneFile:
    return open_one_file(write_file())


@with_bundle
def test_the_folder_is_complete(bundle: OneFile, package: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    size = write_site(bundle, site, read_web_runtime(package), "digits")
    found = {str(path.relative_to(site)): path for path in site.rglob("*") if path.is_file()}
    assert sum(path.stat().st_size for path in found.values()) == size
    assert {f"onnxruntime/{name}" for name in (*RUNTIME_FILES, "LICENSE")} <= found.keys()
    assert set(SHARED) <= found.keys()
    assert "Microsoft" in found["onnxruntime/LICENSE"].read_text()
    assert json.loads(found["site.json"].read_text()) == {"name": "digits", "onnxruntime_web": "1.2.3"}
    # ONNX Runtime Web refuses inputs with defaults.
    assert not open_one_file(found["model.onnx"]).has_defaults


@with_bundle
def test_every_file_that_the_page_names_is_there(bundle: OneFile, package: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(bundle, site, read_web_runtime(package), "digits")
    named = [path for path in site.iterdir() if path.suffix in (".html", ".js")]
    for path in named:
        for quoted in path.read_text().split('"')[1::2]:
            if quoted.endswith((".js", ".mjs", ".css", ".svg", ".onnx", ".wasm", ".json")) and "*" not in quoted:
                assert (site / quoted.removeprefix("./")).is_file(), f"{path.name} names {quoted}"


def test_a_licence_file_of_the_package_is_copied(package: Path) -> None:
    (package / "LICENSE").write_text("another text")
    assert read_web_runtime(package).files["LICENSE"] == b"another text"


def test_an_unknown_licence_is_refused(package: Path) -> None:
    (package / "package.json").write_text(json.dumps({"name": "onnxruntime-web", "license": "Other"}))
    with pytest.raises(RequestError, match=r"names the licence 'Other', not MIT; put its LICENSE into the folder"):
        read_web_runtime(package)


def test_other_folders_are_refused(package: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"is no npm package.*npm install"):
        read_web_runtime(tmp_path)
    (package / "dist" / RUNTIME_FILES[1]).unlink()
    with pytest.raises(RequestError, match=f"has no dist/{RUNTIME_FILES[1]}"):
        read_web_runtime(package)
    (package / "package.json").write_text('{"name": "left-pad"}')
    with pytest.raises(RequestError, match="is not the npm package onnxruntime-web"):
        read_web_runtime(package)


@with_bundle
def test_a_folder_with_content_is_kept(bundle: OneFile, package: Path, tmp_path: Path) -> None:
    runtime = read_web_runtime(package)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "mine.txt").write_text("mine")
    with pytest.raises(RequestError, match="exists and is not empty; give --overwrite"):
        write_site(bundle, tmp_path / "site", runtime, "digits")
    write_site(bundle, tmp_path / "site", runtime, "digits", overwrite=True)
    assert (tmp_path / "site" / "mine.txt").read_text() == "mine"
    with pytest.raises(RequestError, match="is a file; name another --web directory"):
        write_site(bundle, tmp_path / "site" / "mine.txt", runtime, "digits")


@with_bundle
def test_a_network_that_reads_no_pixels_is_refused(write_file: Callable[..., Path], tmp_path: Path) -> None:
    bundle = open_one_file(write_file(image_input="float32"))
    with pytest.raises(RequestError, match="reads float32, and a page has uint8 images"):
        write_site(bundle, tmp_path / "site", WebRuntime("1", {}), "digits")


def test_the_command_needs_both_folders(capsys: pytest.CaptureFixture[str], package: Path, tmp_path: Path) -> None:
    refused = {
        ("--web", str(tmp_path / "site")): "--onnxruntime-web PACKAGE; 'npm install",
        ("--onnxruntime-web", str(package)): "give --web DIR as well",
        ("--web", str(tmp_path / "site"), "--image-input", "float32"): "--web needs uint8 images",
        ("--web", str(tmp_path), "--onnxruntime-web", str(package)): "exists and is not empty",
    }
    for words, message in refused.items():
        assert main(["export", str(tmp_path / "run"), *words]) == 2
        assert message in capsys.readouterr().err
