"""Images of many pixels: refused by us, and nothing of it in the log."""

import io
import warnings
from collections.abc import Callable

import pytest
from PIL import Image
from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def huge() -> bytes:
    """More pixels than Pillow warns about, fewer than it refuses."""
    file = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(file, format="PNG")
    return file.getvalue()


def test_pillow_does_not_warn(make_client: Callable[..., TestClient], huge: bytes) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        answer = make_client().post("/v1/predict", files={"image": ("huge.png", huge)})
    assert answer.status_code == 413
    assert answer.json()["error"] == "huge.png has 10000 x 10000 pixels, the limit is 24,000,000; make it smaller"
    assert [str(one.message) for one in warned] == []
