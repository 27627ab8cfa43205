"""Small images are decoded by the event loop, all others beside it."""

import io
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from elfnet.deploy.images.preprocess import Preprocess


def png(*size: int, noise: bool = False) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8) if noise else np.zeros(size, np.uint8)
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("files", "by"),
    [
        ([png(128, 128)], "loop"),
        ([png(129, 128)], "decoder"),
        ([png(100, 100)] * 2, "decoder"),
        ([png(300, 300, noise=True)], "decoder"),
    ],
)
def test_few_bytes_of_many_pixels_do_not_hold_up_the_loop(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, files: list[bytes], by: str
) -> None:
    threads: list[str] = []
    real: Callable[..., Any] = Preprocess.pixels

    def seen(preprocess: Preprocess, image: Any) -> Any:
        threads.append(threading.current_thread().name)
        return real(preprocess, image)

    monkeypatch.setattr(Preprocess, "pixels", seen)
    answer = client.post("/v1/predict", files=[("image", (f"{i}.png", file)) for i, file in enumerate(files)])
    assert len(answer.json()["answers"]) == len(threads) == len(files)
    assert {"decoder" if name.startswith("elfnet-decode") else "loop" for name in threads} == {by}
