"""Weights files: safetensors and tensors-only torch files, wrapped or not; nothing in them executes."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from elfnet.errors import RequestError, WorkError
from elfnet.models.pretrained import read_weights_file

TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.steps": torch.tensor(4)}


def _assert_read(file: Path, expected: dict[str, Tensor] = TENSORS) -> None:
    found = read_weights_file(file)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# Content decides, not the name.
@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w"])
def test_safetensors(tmp_path: Path, name: str) -> None:
    save_file(TENSORS, tmp_path / name)
    _assert_read(tmp_path / name)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        TENSORS,
        {"state_dict": TENSORS, "epoch": 3, "arch": "resnet50"},
        {"model": {"state_dict": TENSORS}},
        {"model_state_dict": {**TENSORS, "version": 2}, "optimizer": {"state": {}}},
    ],
)
def test_torch_files(tmp_path: Path, content: dict[str, Any], old: bool) -> None:
    torch.save(content, tmp_path / "w.pth", _use_new_zipfile_serialization=not old)
    _assert_read(tmp_path / "w.pth")


class _Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.file,))


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_nothing_executes(tmp_path: Path, how: str) -> None:
    file, touched = tmp_path / "w.pth", tmp_path / "touched"
    content = {"state_dict": TENSORS, "extra": _Trap(touched)}
    if how == "torch":
        torch.save(content, file)
    else:
        file.write_bytes(pickle.dumps({"extra": _Trap(touched)}))
    with pytest.raises(WorkError, match="holds more than tensors") as caught:
        read_weights_file(file)
    assert "\n" not in str(caught.value)
    assert not touched.exists()


@pytest.mark.parametrize("kind", ["safetensors", "torch"])
@pytest.mark.parametrize("kept", [0, 5, 60, -3])
def test_truncated_files_are_refused_in_one_line(tmp_path: Path, kind: str, kept: int) -> None:
    file = tmp_path / "w"
    if kind == "torch":
        torch.save(TENSORS, file)
    else:
        save_file(TENSORS, file)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(WorkError, match=r"model\.weights: ") as caught:
        read_weights_file(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_has_no_tensors(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"there is no file .*nothing"):
        read_weights_file(tmp_path / "nothing")
    for content in ({"epoch": 3}, [1, 2], torch.zeros(3)):
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(WorkError, match="holds no tensors by name"):
            read_weights_file(tmp_path / "w.pth")
