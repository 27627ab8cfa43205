"""Settings and sample images of the service."""

import io
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_int64
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, features
from starlette.testclient import TestClient

from elfnet.data.images.silence import silent_decoders
from elfnet.errors import RequestError
from elfnet.inference.engine import Engine
from elfnet.inference.model import Model
from elfnet.serve.service import Service, read_samples
from elfnet.serve.settings import ServeSettings


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
        ({"request_seconds": 3601.0}, "request_seconds=3601 must be above 0 and at most 3600"),
        ({"allowed_origins": ("shop.example",)}, "allowed_origins has 'shop.example', which is not an origin"),
        ({"allowed_origins": ("https://shop.example/",)}, "which is not an origin; give scheme and host"),
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
    with silent_decoders():
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


def test_folders_of_samples_take_turns(tmp_path: Path, digit_files: list[bytes]) -> None:
    for name in ("a/1.png", "a/2.png", "a/3.png", "b/4.png", "b/5.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(digit_files[0])
    assert [sample.name for sample in read_samples(tmp_path)] == ["1.png", "4.png", "2.png", "5.png", "3.png"]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"--samples .* has no images; put files of PNG, JPEG, WEBP, GIF, BMP there"):
        read_samples(tmp_path)
    with pytest.raises(RequestError, match=r"--samples .*none is not a folder; name a folder with images"):
        read_samples(tmp_path / "none")


def test_workers_divide_the_limits_on_all_requests() -> None:
    whole = ServeSettings(max_requests=9)
    share = whole.divide(4)
    assert (share.max_queue, share.max_requests) == (128, 2)
    assert (share.max_held_bytes, share.max_held_pixels) == (32_000_000, 96_000_000)
    assert (share.max_body_bytes, share.max_batch, share.read_seconds) == (16_000_000, 64, 20.0)
    assert whole.divide(1) == whole
    with pytest.raises(RequestError, match=r"max_held_pixels=384000000 divided by 5 workers is less than"):
        whole.divide(5)
    for workers in (0, 65):
        with pytest.raises(RequestError, match=f"workers={workers} must be between 1 and 64"):
            whole.divide(workers)


def test_processes_share_the_operating_point(model: Model) -> None:
    shared = RawValue(c_int64, 0)
    first, second = (Service(model_of(model), name="digits", shared_point=shared) for _ in range(2))
    names = [point.name for point in model.engine.family.points]
    assert first.operating_point == second.current_point == names[0]
    first.set_operating_point(names[2])
    assert (first.operating_point, second.operating_point, second.current_point) == (names[2],) * 3
    with pytest.raises(RequestError):
        second.set_operating_point("nowhere")
    assert first.operating_point == names[2]
    for service in (first, second):
        service.close()


def model_of(model: Model) -> Model:
    """The model with an engine of its own, as another process has."""
    return Model(Engine(model.engine.backend, model.engine.family), model.preprocess, model.class_names)


def test_metrics_with_a_port_of_their_own_have_no_route(make_client: Callable[..., TestClient]) -> None:
    assert make_client().get("/metrics").status_code == 200
    response = make_client(metrics_route=False).get("/metrics")
    assert (response.status_code, response.json()) == (404, {"error": "not found; /openapi.json lists the routes"})
