"""Settings and sample images of the service."""

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, features
from starlette.testclient import TestClient

from elfnet.errors import RequestError
from elfnet.serve.service import ServeSettings, read_samples, silent_libtiff


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_batch": 0}, "max_batch=0 must be 1 or more"),
        ({"wait_ms": -1.0}, "wait_ms=-1 must be between 0 and 1000"),
        ({"max_images": 9, "max_queue": 8}, "max_images=9 is more than max_queue=8; lower the first"),
        ({"max_body_bytes": 11, "max_held_bytes": 10}, "max_body_bytes=11 is more than max_held_bytes=10"),
        ({"max_pixels": 9, "max_request_pixels": 8}, "max_pixels=9 is more than max_request_pixels=8; lower"),
        ({"max_held_pixels": 8}, "max_request_pixels=96000000 is more than max_held_pixels=8; lower the first"),
        (
            {"allowed_hosts": ("http://a.example",)},
            "allowed_hosts has 'http://a.example', which is not a host name; give",
        ),
        (
            {"allowed_hosts": ("a.example:80",)},
            "allowed_hosts has 'a.example:80', which is not a host name; give a name",
        ),
        ({"read_seconds": 0.0}, "read_seconds=0 must be above 0 and at most 3600"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ServeSettings(**settings)


def test_libtiff_writes_nothing_to_standard_error(
    make_client: Callable[..., TestClient], capfd: pytest.CaptureFixture[str]
) -> None:
    if not features.check("libtiff"):
        pytest.skip("Pillow has no libtiff")
    file = io.BytesIO()
    Image.effect_noise((64, 64), 90).save(file, format="TIFF", compression="tiff_lzw")
    damaged = bytearray(file.getvalue())
    damaged[100:200] = bytes(100)

    def decode() -> str:
        with suppress(OSError):
            Image.open(io.BytesIO(damaged)).load()
        return capfd.readouterr().err

    assert decode() != ""
    with silent_libtiff():
        assert decode() == ""
    assert decode() != ""
    response = make_client().post("/v1/predict", files={"image": ("a.tiff", bytes(damaged))})
    assert (response.status_code, capfd.readouterr().err) == (422, "")
    assert response.json()["error"].startswith("a.tiff is truncated or damaged")


def test_samples_are_the_images_of_a_folder(tmp_path: Path, digit_files: list[bytes]) -> None:
    (tmp_path / "a <b>.png").write_bytes(digit_files[0])
    (tmp_path / "b.png").write_text("no image")
    (tmp_path / "c.txt").write_text("text")
    (tmp_path / ".hidden.png").write_bytes(digit_files[1])
    (sample,) = read_samples(tmp_path)
    assert (sample.name, sample.content, sample.media_type) == ("a <b>.png", digit_files[0], "image/png")
    assert read_samples(None) == ()


def test_samples_are_searched_in_folders(tmp_path: Path, digit_files: list[bytes]) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "one.png").write_bytes(digit_files[0])
    assert [sample.name for sample in read_samples(tmp_path)] == ["one.png"]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"--samples .* has no images; put files of PNG, JPEG, WEBP, GIF, BMP there"):
        read_samples(tmp_path)
    with pytest.raises(RequestError, match=r"--samples .*none is not a folder; name a folder with images"):
        read_samples(tmp_path / "none")
