"""Folders of the hub's form, its cache, and a server on loopback that stands for it."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import elfnet
from elfnet.errors import RequestError, WorkError
from elfnet.hub import from_pretrained, load_network, push_to_hub, save_pretrained
from elfnet.pretrained.names import find_model

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained("clothing", tmp_path_factory.mktemp("saved") / "clothing", licence="cc0-1.0")


class _Hub(BaseHTTPRequestHandler):
    """The part of the hub that downloads need: one repository `user/clothing`, with the files of a folder."""

    folder: Path
    requests: list[str]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.requests.append(f"{self.command} {self.path}")
        parts = self.path.partition("?")[0].strip("/").split("/")
        found = parts[:3] == ["user", "clothing", "resolve"] and parts[3] in ("main", COMMIT)
        file = self.folder / parts[-1]
        if not found or not file.is_file():
            code = "EntryNotFound" if found else "RepoNotFound"
            if parts[:2] == ["user", "clothing"] and not found:
                code = "RevisionNotFound"
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = file.read_bytes()
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Hub]]:
    """The stand-in, with an empty cache."""
    handler = type("Hub", (_Hub,), {"folder": saved, "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    from huggingface_hub import constants, file_download

    for module in (constants, file_download):
        for name, value in {
            "ENDPOINT": address,
            "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
        }.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    try:
        yield handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_folder_with_the_file_and_a_card(saved: Path) -> None:
    assert sorted(path.name for path in saved.iterdir()) == ["README.md", "model.onnx"]
    card = (saved / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: elfnet\n")
    assert "license: cc0-1.0" in card
    assert "| operating point |" in card
    model, shipped = from_pretrained(saved), elfnet.load("clothing")
    assert model.class_names == shipped.class_names
    with pytest.raises(WorkError, match=r"there is no .*network\.json; save_pretrained writes it for a run"):
        load_network(saved)


def test_download_into_the_cache_and_from_it_without_the_network(
    hub: type[_Hub], saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = find_model("hub:user/clothing")
    assert path.read_bytes() == (saved / "model.onnx").read_bytes()
    assert path.parts[-3:] == ("snapshots", COMMIT, "model.onnx")
    assert hub.requests
    hub.requests.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert len(from_pretrained(f"hub:user/clothing@{COMMIT}").class_names) == 10
    assert not hub.requests


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hub:nobody/nothing", "the hub has no repository nobody/nothing, or it is private"),
        ("hub:user/clothing@v9", "user/clothing has no revision v9"),
    ],
)
def test_what_the_hub_does_not_have(hub: type[_Hub], name: str, message: str) -> None:
    with pytest.raises(WorkError, match=message):
        find_model(name)
    assert hub.requests


def test_a_repository_without_our_file(hub: type[_Hub]) -> None:
    with pytest.raises(WorkError, match=r"user/clothing has no file other\.onnx"):
        find_model("hub:user/clothing", file="other.onnx")
    assert hub.requests


def test_no_network_is_one_line(hub: type[_Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(WorkError, match=r"cannot reach the hub for user/clothing, and model\.onnx is not in the cache"):
        find_model("hub:user/clothing")
    assert not hub.requests


def test_upload(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, Any] = {}

    class _Commit:
        commit_url = "https://hub.example/commit/1"

    def create(_: Any, repository: str, **settings: Any) -> None:
        calls["create"] = (repository, settings)

    def upload(_: Any, *, repo_id: str, folder_path: Path, **__: Any) -> _Commit:
        calls["files"] = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        calls["repository"] = repo_id
        return _Commit()

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", create)
    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", upload)
    assert push_to_hub(saved / "model.onnx", "user/new") == _Commit.commit_url
    assert calls["create"] == ("user/new", {"private": True, "exist_ok": True})
    assert calls["files"]["model.onnx"] == (saved / "model.onnx").read_bytes()
    assert b'from_pretrained("hub:user/new")' in calls["files"]["README.md"]
    with pytest.raises(RequestError, match="must have the form user/name"):
        push_to_hub(saved / "model.onnx", "new")


def test_upload_without_a_network_is_one_line(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's errors of the connection are of its HTTP library, and no OSError."""
    refused = Mock(side_effect=type("ConnectError", (Exception,), {})("Connection refused"))
    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refused)
    with pytest.raises(WorkError, match=r"^cannot upload to user/new: Connection refused; check .* the network$"):
        push_to_hub(saved / "model.onnx", "user/new")


def test_the_hub_client_says_nothing_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def download(*_: Any, **__: Any) -> str:
        from huggingface_hub.utils import logging

        logging.get_logger("huggingface_hub.utils").warning("Retrying in 1s")
        raise RuntimeError

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    with pytest.raises(WorkError, match=r"^cannot download user/name from the hub: RuntimeError; check the network$"):
        find_model("hub:user/name")
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_the_network_of_a_run(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    import numpy as np
    import torch

    run = elfnet.train_recipe(
        elfnet.load_recipe("digits/elf-ce-drw", {**tiny_settings, "train.epochs": 1}), tmp_path / "r"
    )
    elfnet.calibrate_run(run)
    folder = save_pretrained(run.root, tmp_path / "saved")
    network, settings = load_network(folder)
    table = elfnet.evaluate_run(run, "test")
    assert settings.class_names == table.class_names
    from elfnet.data.build import load_splits
    from elfnet.inference.preprocess import Preprocess

    images = load_splits(run.recipe().data).test.images_NHWC
    pixels = Preprocess(mode="L", height=32, width=32, mean=settings.mean, std=settings.std).normalise(images)
    with torch.no_grad():
        logits_EBC = network.logits(torch.from_numpy(pixels))
    np.testing.assert_allclose(logits_EBC.transpose(0, 1).numpy(), table.logits_NEC, atol=1e-4)
    stored = json.loads((folder / "network.json").read_text())
    stored["weights_sha256"] = "0" * 64
    (folder / "network.json").write_text(json.dumps(stored))
    with pytest.raises(WorkError, match="was altered"):
        load_network(folder)
