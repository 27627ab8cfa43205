"""Which files of elfnet one call passes through: `python tests/walks.py` prints three walks.

Only functions that run count; what is executed while modules are imported does not.
"""

import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

import elfnet
from elfnet.inference import load
from elfnet.recipe import load_recipe
from elfnet.serve import ServeSettings, Service, create_app
from elfnet.train import train_recipe

ROOT = Path(elfnet.__file__).parent
STORED = Path(__file__).parent / "integration" / "stored"
OF_FUNCTION = 0x2
"""The flag of code that belongs to a function, not to a module or a class."""


class Tracer:
    """Notes which functions run, in this thread and in all that start while it is installed, while it records."""

    def __init__(self) -> None:
        self._seen: set[CodeType] = set()
        self._records = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def files(self, action: Callable[[], object]) -> list[str]:
        """Files under src/elfnet whose functions ran during the call, by name."""
        self._seen, self._records = set(), True
        try:
            action()
        finally:
            self._records = False
        files = {Path(code.co_filename) for code in self._seen if code.co_flags & OF_FUNCTION}
        return sorted(str(file.relative_to(ROOT)) for file in files if file.is_relative_to(ROOT))

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self._records and event == "call":
            self._seen.add(frame.f_code)


def train(out: Path) -> None:
    """One short training run from a recipe."""
    settings = {
        "data.largest": 24,
        "data.ratio": 4,
        "data.calibration_per_class": 6,
        "data.test_per_class": 6,
        "model.backbone": "resnet8",
        "model.head_filters": 4,
        "train.epochs": 1,
        "train.compile": "off",
    }
    train_recipe(load_recipe("digits/elf-ce-drw", settings), out)


def predict() -> None:
    """One image classified by a bundle."""
    model = load(STORED / "bundle.onnx")
    list(model.predict([np.zeros((32, 32), dtype=np.uint8)]))


def post(client: TestClient) -> None:
    """One image classified over HTTP."""
    content = io.BytesIO()
    Image.new("L", (32, 32), 90).save(content, "PNG")
    response = client.post("/v1/predict", files={"image": ("digit.png", content.getvalue(), "image/png")})
    assert response.status_code == 200, response.text


def walks() -> dict[str, list[str]]:
    """Files of each walk, each taken once before, so that imports on first use do not count."""
    tracer = Tracer()
    service = Service(load(STORED / "bundle.onnx"), name="digits", settings=ServeSettings())
    with (
        tempfile.TemporaryDirectory() as folder,
        tracer.installed(),
        TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client,
    ):
        train(Path(folder) / "before")
        predict()
        post(client)
        return {
            "train": tracer.files(lambda: train(Path(folder) / "traced")),
            "predict": tracer.files(predict),
            "HTTP request": tracer.files(lambda: post(client)),
        }


if __name__ == "__main__":
    for name, files in walks().items():
        sys.stdout.write(f"{name}: {len(files)} files\n" + "".join(f"  {file}\n" for file in files))
