"""The training step of every method on one device that is not the CPU, and how often it makes the host wait."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from device_check import META, MixedDevicesError, meta_fabric, one_device
from lightning_fabric import Fabric

from elfnet.losses.base import BaseLoss
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.models.build import network_of
from elfnet.recipe.load import load_recipe, shipped_methods
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import BALANCED, stages_of
from elfnet.run.directory import RunDirectory
from elfnet.run.info import Machine
from elfnet.train.build import assemble, second_stage_network
from elfnet.train.distributed import DistributedContext
from elfnet.train.logging import Silent
from elfnet.train.prepare import prepare

MACHINE = Machine(device="cuda", precision="float32", compile=False, channels_last=True, threads=1)
STARTED_FROM_A_RUN = {
    method
    for method in shipped_methods()
    if (refit := load_recipe(f"digits/{method}").refit).method != "none" and not refit.epochs
}
"""Methods whose step needs a finished run; the step of their classifiers is that of a second stage, below."""


class WaitsPerStep(Silent):
    """Counts the waits of each step between the first and the last; the last step of an epoch also reads the loss."""

    def __init__(self) -> None:
        self.so_far: Callable[[], list[str]] = list
        self._totals: list[int] = []

    def step(self, step: int, steps: int) -> None:  # noqa: ARG002 (part of the interface)
        self._totals.append(len(self.so_far()))

    def found(self) -> set[tuple[str, ...]]:
        waits = self.so_far()
        pairs = list(zip(self._totals[:-1], self._totals[1:], strict=True))
        assert len(pairs) > 1, "too few steps to count"
        return {tuple(waits[first:end]) for first, end in pairs[:-1]}


def _waits(recipe: Recipe, directory: Path, remain: Callable[[int], int] = lambda n: n // 2) -> set[tuple[str, ...]]:
    """Train one epoch of each stage on the meta device; the waits of the steps of the last."""
    on_cpu = DistributedContext(Fabric(accelerator="cpu", devices=1))
    prepared = prepare(recipe, RunDirectory(directory / "run"), on_cpu, overwrite=False, given=None)
    prepared = replace(prepared, processes=DistributedContext(meta_fabric()))
    network = prepared.network
    for stage in stages_of(recipe):
        if stage.name == BALANCED:
            network = second_stage_network(stage, _cpu(network), classes=prepared.classes, image_channels=1)
        observer = WaitsPerStep()
        with one_device(remain) as device:
            observer.so_far = partial(list, device.waits)
            assembled = assemble(prepared, stage, network, None, MACHINE, observer)
            record = assembled.trainer.run_epoch(stage.first)
            assert record.epoch == stage.first
        found = observer.found()
    return found


def _cpu(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in network.state_dict().items()}


def _exits(recipe: Recipe) -> int:
    return network_of(recipe.model, classes=10, image_channels=1).exits


@pytest.fixture
def tiny(tiny_settings: dict[str, Any]) -> Callable[..., Recipe]:
    def build(method: str, **overrides: Any) -> Recipe:
        dotted = {name.replace("__", "."): value for name, value in overrides.items()}
        settings = {**tiny_settings, "data.largest": 12, "train.batch_size": 16, "train.precision": "float32"}
        return load_recipe(f"digits/{method}", {**settings, **dotted})

    return build


FAST = (
    "bbn",
    "distilled-exits",
    "elf-ldam-drw",
    "elf-strong-experts",
    "focal-drw-reference",
    "manifold-mixup",
    "mixup",
)
"""One method of every kind; `make test-all` tries the others."""


@pytest.mark.parametrize(
    "method",
    [
        method if method in FAST else pytest.param(method, marks=pytest.mark.slow)
        for method in sorted(set(shipped_methods()) - STARTED_FROM_A_RUN)
    ],
)
def test_every_method_keeps_to_its_device_and_never_waits(
    method: str, tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    assert _waits(tiny(method), tmp_path) == {()}


@pytest.mark.slow
def test_every_way_to_change_a_batch(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    """Patches of rare classes, erased boxes, resized and pruned images, averaged weights, parts of a batch."""
    cmo = {"train__mix": "cmo", "data__random_erasing": 0.5, "train__ema_decay": 0.9, "train__resize_start": 0.5}
    pruned = {"train__prune": 0.5, "train__prune_floor": 2, "train__accumulate": 2, "data__cutout": 2}
    for name, overrides in (("cmo", cmo), ("pruned", pruned)):
        assert _waits(tiny("elf-balanced-softmax", **overrides), tmp_path / name) == {()}


@pytest.mark.parametrize("method", ["elf-ce-drw", pytest.param("elf-strong-experts", marks=pytest.mark.slow)])
@pytest.mark.parametrize("remain", [lambda n: n, lambda n: n // 2], ids=["all remain", "half remain"])
def test_dropping_waits_once_per_early_exit(
    method: str, remain: Callable[[int], int], tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = tiny(method, exits__after_exit="drop", refit__method="none", refit__epochs=0)
    early = _exits(recipe) - 1
    assert early > 1
    assert _waits(recipe, tmp_path, remain) == {("nonzero",) * early}


def test_dropping_waits_no_more_once_all_have_left(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = tiny("elf-ce-drw", exits__after_exit="drop")
    assert _waits(recipe, tmp_path, lambda _: 0) == {("nonzero",)}


def test_a_constant_left_on_the_cpu_is_found(
    tiny: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Margins that are no buffer stay where they were made."""
    monkeypatch.setattr(BaseLoss, "keep_constant", lambda loss, name, values: setattr(loss, name, values.float()))
    with pytest.raises(MixedDevicesError, match=r"aten.index.Tensor: \(10,\) on cpu, .* on meta"):
        _waits(tiny("elf-ldam-drw"), tmp_path)


def test_a_wait_in_the_step_is_counted(
    tiny: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = CrossEntropyLoss.forward

    def waiting(loss: CrossEntropyLoss, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits.sum().item()
        return forward(loss, logits, target)

    monkeypatch.setattr(CrossEntropyLoss, "forward", waiting)
    assert _waits(tiny("ce"), tmp_path) == {("item",)}


@pytest.mark.parametrize(
    ("wait", "name"),
    [
        (lambda tensor: bool(tensor.any()), "item"),
        (lambda tensor: tensor.tolist(), "copy to the host"),
        (lambda tensor: tensor[tensor > 0], "nonzero"),
        (lambda tensor: torch.tensor(1.0, device=tensor.device), "blocking copy to the device"),
        (lambda tensor: torch.ones(3).to(tensor.device), "blocking copy to the device"),
        (lambda tensor: tensor.copy_(torch.ones(4)), "blocking copy to the device"),
    ],
)
def test_ways_to_wait(wait: Callable[[torch.Tensor], object], name: str) -> None:
    with one_device() as device:
        wait(torch.ones(4, device=META))
    assert device.waits == [name]


def test_what_does_not_wait() -> None:
    with one_device() as device:
        tensor = torch.ones(4, device=META)
        tensor.copy_(torch.ones(4), non_blocking=True)
        tensor += torch.ones(4).to(META, non_blocking=True) * torch.tensor(2.0)
        tensor[0] = 3.0
    assert device.waits == []
