"""Checkpoints: bit for bit, and everything that is wrong with one refused in one line."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elfnet.errors import WorkError
from elfnet.run import checkpoint as checkpoint_format
from elfnet.run.checkpoint import HEADER, Checkpoint, load_checkpoint, save_checkpoint, tensors_sha256

NETWORK = "a small network"


def _small(seed: int = 0) -> Checkpoint:
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "stem.weight": torch.randn(2, 3, 2, 2, generator=generator).contiguous(memory_format=torch.channels_last),
        "bn.num_batches_tracked": torch.tensor(7),
        "half": torch.tensor([1.5, -0.0, float("nan")], dtype=torch.bfloat16),
        "none": torch.empty(0, 3),
    }
    momentum = {"stem.weight": torch.randn(2, 3, 2, 2, generator=generator)}
    return Checkpoint(NETWORK, 12, weights, momentum, {"best_score": 1 / 3, "best_epoch": 3})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "last.safetensors"
    save_checkpoint(_small(), path)
    return path


def _bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _rewrite(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The same tensors under a header that was changed."""
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()[HEADER])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
    change(header)
    save_file(tensors, file, metadata={HEADER: json.dumps(header)})


def _refusal(file: Path, **how: Any) -> str:
    with pytest.raises(WorkError) as caught:
        load_checkpoint(file, **how)
    message = str(caught.value)
    assert "\n" not in message
    assert str(file) in message
    return message


def test_round_trip_is_bit_for_bit(file: Path) -> None:
    saved, loaded = _small(), load_checkpoint(file, network=NETWORK)
    for before, after in ((saved.weights, loaded.weights), (saved.optimiser, loaded.optimiser)):
        assert before.keys() == after.keys()
        for name in before:
            assert (before[name].dtype, before[name].shape) == (after[name].dtype, after[name].shape)
            assert _bits(before[name]) == _bits(after[name]), name
    assert (loaded.network, loaded.epochs_done, loaded.progress) == (NETWORK, 12, saved.progress)
    assert loaded.sha256 == saved.sha256


def test_identity_is_that_of_the_weights() -> None:
    """An exit table fits a checkpoint by its weights, wherever they lie in memory and whatever the optimiser did."""
    saved = _small()
    plain = {name: tensor.contiguous() for name, tensor in saved.weights.items()}
    assert Checkpoint("other", 1, plain).sha256 == saved.sha256
    assert _small(seed=1).sha256 != saved.sha256
    assert tensors_sha256({"a": torch.zeros(2, 3)}) != tensors_sha256({"a": torch.zeros(3, 2)})
    assert tensors_sha256({"a": torch.zeros(2)}) != tensors_sha256({"b": torch.zeros(2)})
    assert tensors_sha256({"a": torch.zeros(2)}) != tensors_sha256({"a": torch.zeros(2, dtype=torch.int32)})


def test_a_file_cut_anywhere_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for length in (0, 1, 8, 20, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        assert "truncated or damaged" in _refusal(file)


def test_any_altered_byte_is_refused(file: Path) -> None:
    """Weights, names, shapes, and the header: none of it may change unseen."""
    content = file.read_bytes()
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= 1
        file.write_bytes(altered)
        try:
            _refusal(file)
        except pytest.fail.Exception:
            context = bytes(altered[max(0, position - 20) : position + 20])
            pytest.fail(f"byte {position} of {len(content)} was altered unseen, near {context!r}")


def test_another_format_version_is_refused(file: Path) -> None:
    _rewrite(file, lambda header: header.update(format=99))
    assert "has format version 99, this elfnet reads 1; use the version of elfnet that wrote it" in _refusal(file)


@pytest.mark.parametrize("key", ["network", "epochs_done", "progress", "sha256"])
def test_a_header_that_lacks_something_is_refused(file: Path, key: str) -> None:
    _rewrite(file, lambda header: header.pop(key))
    assert "damaged" in _refusal(file)


def test_a_changed_number_of_epochs_is_refused(file: Path) -> None:
    _rewrite(file, lambda header: header.update(epochs_done=13))
    assert "was altered" in _refusal(file)


def test_another_network_is_refused(file: Path) -> None:
    assert "is for another network (a small network, not a large one)" in _refusal(file, network="a large one")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path / "no.safetensors").startswith("no checkpoint at ")
    assert _refusal(tmp_path).startswith("no checkpoint at ")


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(2)}, file)
    assert "is not a checkpoint of elfnet" in _refusal(file)
    save_file({"a": torch.zeros(2)}, file, metadata={HEADER: "[1]"})
    assert "is not a checkpoint of elfnet" in _refusal(file)
    file.write_text("a story")
    assert "truncated or damaged" in _refusal(file)


def test_a_pickle_is_refused_without_being_loaded(tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    torch.save({"a": torch.zeros(2)}, file)
    assert "truncated or damaged" in _refusal(file)


def _full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _full_disk_as_the_library_says_it(_tensors: object, path: Path, **_: object) -> None:
    Path(path).write_bytes(b"half of it")
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("place", "failure"),
    [("os.replace", _full_disk), ("writer", _full_disk), ("writer", _full_disk_as_the_library_says_it)],
)
def test_a_full_disk_leaves_the_old_checkpoint(
    file: Path, monkeypatch: pytest.MonkeyPatch, place: str, failure: Callable[..., None]
) -> None:
    before = shutil.copy(file, file.with_suffix(".copy"))
    if place == "writer":
        monkeypatch.setattr(checkpoint_format, "save_file", failure)
    else:
        monkeypatch.setattr(place, failure)
    with pytest.raises(WorkError, match="No space left on device") as caught:
        save_checkpoint(_small(seed=1), file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)
    monkeypatch.undo()
    assert file.read_bytes() == Path(before).read_bytes()
    assert sorted(p.name for p in file.parent.iterdir()) == ["last.copy", "last.safetensors"]


def test_an_interrupt_while_reading_is_no_verdict_about_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In C, torch may replace the KeyboardInterrupt of a signal by an error about the tensor, as this stand-in does."""

    class Interrupted:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._opened: Any = safe_open(*arguments, **options)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            return getattr(self._opened, name)

        def get_tensor(self, name: str) -> Tensor:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise ValueError("could not determine the shape of an object") from None
            return self._opened.get_tensor(name)  # type: ignore[no-any-return]

    monkeypatch.setattr(checkpoint_format, "safe_open", Interrupted)
    # A process that a shell started in the background ignores the signal.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            load_checkpoint(file)
    finally:
        signal.signal(signal.SIGINT, previous)
