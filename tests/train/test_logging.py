"""Loggers beside log.jsonl."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from run_files import epoch_record

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.run.directory import RunDirectory
from elfnet.run.log import read_log
from elfnet.train.logging import JsonLines, open_loggers

RECORD = epoch_record(3, loss=1.5)


class FakeWandb(ModuleType):
    """Stands for Weights & Biases: remembers what it was told."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.started: dict[str, Any] = {}
        self.logged: list[tuple[dict[str, float], int]] = []
        self.finished = False

    def init(self, **settings: Any) -> "FakeWandb":
        self.started = settings
        return self

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.logged.append((values, step))

    def finish(self) -> None:
        self.finished = True


def test_weights_and_biases_gets_every_number_and_goes_on_in_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    recipe = load_recipe("digits/ce", {"track.wandb": True, "track.wandb_project": "mine"})
    loggers = open_loggers(RunDirectory(tmp_path / "first"), recipe, 0)
    for logger in loggers:
        logger.log(RECORD)
        logger.close()
    assert fake.logged == [
        (
            {
                "epoch": 3,
                "learning_rate": 0.1,
                "loss": 1.5,
                "exit_share/1": 0.25,
                "exit_share/2": 0.75,
                "loss_by_exit/2": 2,
                "seconds": 1.5,
            },
            3,
        )
    ]
    assert (fake.started["project"], fake.started["id"], fake.started["resume"]) == ("mine", "first", "allow")
    assert fake.started["config"]["track"]["wandb"] is True
    assert fake.finished


@pytest.mark.parametrize(
    ("setting", "module"), [("track.wandb", "wandb"), ("track.tensorboard", "torch.utils.tensorboard.writer")]
)
def test_a_missing_package_is_one_line(
    setting: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RequestError, match=rf"{setting}=true needs .*: .*pip install .*\[track\]'"):
        open_loggers(RunDirectory(tmp_path), load_recipe("digits/ce", {setting: True}), 0)


def test_records_of_epochs_to_be_run_again_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    log = JsonLines(file, keep_epochs=0)
    for epoch in range(4):
        log.log(epoch_record(epoch))
    JsonLines(file, keep_epochs=2)
    assert read_log(file) == (epoch_record(0), epoch_record(1))
