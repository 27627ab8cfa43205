"""The tools of others as they are, where other tests use stand-ins: Weights & Biases offline, datasets, TensorBoard."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from elfnet import load_recipe, train_recipe
from elfnet.data.build import load_source
from elfnet.data.images.decode import Limits
from elfnet.data.types import SourceRequest

pytestmark = pytest.mark.slow


def _need(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs {package}, which make test-all installs")


@pytest.mark.filterwarnings("default")
def test_tensorboard_reads_back_what_was_logged(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    _need("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {**tiny_settings, "train.epochs": 2, "track.tensorboard": True}
    run = train_recipe(load_recipe("digits/elf-ce-drw", settings), tmp_path / "run")
    (events,) = (tmp_path / "run").rglob("events.out.tfevents.*")
    read = EventAccumulator(str(events.parent))
    read.Reload()
    losses = [record.loss for record in run.log()]
    (tag,) = [tag for tag in read.Tags()["scalars"] if tag == "loss" or tag.endswith("/loss")]
    np.testing.assert_allclose([event.value for event in read.Scalars(tag)], losses, rtol=1e-6)


def test_weights_and_biases_offline(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    """In a process of its own: the package leaves threads and variables behind."""
    _need("wandb")
    settings = {**tiny_settings, "train.epochs": 1, "track.wandb": True}
    program = (
        "from elfnet import load_recipe, train_recipe\n"
        f"train_recipe(load_recipe('digits/elf-ce-drw', {settings!r}), 'run')\n"
    )
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (stored,) = tmp_path.rglob("run-*.wandb")
    content = stored.read_bytes()
    # The recipe and the figures of the epoch are in the file that a later sync would send.
    for text in (b"loss", b"learning_rate", b"calibration_per_class"):
        assert text in content


def test_a_data_set_of_local_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own reader of image folders, without the network."""
    _need("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for split in ("train", "test"):
        for number, name in enumerate(("ant", "bee")):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for image in range(4):
                pixels = np.full((8, 8, 3), 40 * image + number, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{image}.png")
    source = load_source("hub", request=SourceRequest(hub=str(tmp_path / "images"), image_size=8))
    assert source.class_names == ("ant", "bee")
    assert np.bincount(source.train.labels_N).tolist() == [4, 4]
    assert source.test is not None
    assert len(source.test) == 8
    assert source.train.encoded(0, Limits()) == (tmp_path / "images" / "train" / "ant" / "0.png").read_bytes()
