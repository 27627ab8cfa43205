"""POST /v1/predict: predictions equal those of the model, and bad requests get a status and a message."""

import io
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from elfnet.calibrate.measured_cost import MeasuredCost, TimeBudget
from elfnet.data.images.decode import Limits, OpenImage
from elfnet.inference.model import Model
from elfnet.inference.preprocess import Preprocess
from elfnet.serve import predict
from elfnet.serve.errors import ApiError
from elfnet.serve.requests import Upload
from elfnet.serve.responses import PredictResponse

AsJson = Callable[..., dict[str, Any]]


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, format=kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("point", ["full", "s=0.3", None])
def test_predictions_equal_those_of_the_model(
    client: TestClient, model: Model, digit_files: list[bytes], as_json: AsJson, point: str | None
) -> None:
    files = digit_files[:12]
    expected = model.predict([Image.open(io.BytesIO(file)) for file in files], operating_point=point, top=3)
    form = client.post(
        "/v1/predict",
        files=[("image", (f"{i}.png", file)) for i, file in enumerate(files)],
        data={"top": "3", **({"operating_point": point} if point else {})},
    ).json()
    body = client.post("/v1/predict", json=as_json(files, top=3, operating_point=point)).json()
    assert form["operating_point"] == body["operating_point"] == (point or "full")
    assert [answer["name"] for answer in form["answers"]] == [f"{i}.png" for i in range(12)]
    for answers in (form["answers"], body["answers"]):
        for answer, wanted in zip(answers, expected, strict=True):
            assert (answer["label"], answer["class_index"]) == (wanted.label, wanted.class_index)
            assert (answer["exit"], answer["cost"]) == (wanted.exit, wanted.cost)
            assert answer["confidence"] == wanted.confidence
            assert [(top["label"], top["probability"]) for top in answer["top"]] == list(wanted.top)
    assert body["milliseconds"] >= body["engine_milliseconds"] > 0
    assert body["batch"] == 12


def test_a_budget_in_milliseconds_chooses_the_point(
    make_client: Callable[..., TestClient],
    model: Model,
    digit_files: list[bytes],
    as_json: Callable[..., dict[str, Any]],
) -> None:
    plain = len(model.engine.family.cost)
    client = make_client()
    refused = client.post("/v1/predict", json=as_json(digit_files[:1], budget="5ms"))
    assert (refused.status_code, "this service has not measured" in refused.json()["error"]) == (422, True)
    times = MeasuredCost(
        stages=(1e-3,) * plain, heads=(1e-4,) * plain, plain=1e-3 * plain, backend="x", batch=1, threads=1
    )
    model.times = times
    client = make_client()
    point = model.engine.family.for_budget(TimeBudget(1.5), times=times)
    assert point != model.engine.family.points[0]
    answer = client.post("/v1/predict", json=as_json(digit_files[:1], budget="1.5ms")).json()
    assert answer["operating_point"] == point.name
    form = client.post("/v1/predict", files={"image": ("a", digit_files[0])}, data={"budget": "1.5ms"}).json()
    assert form["operating_point"] == point.name
    described = {one["name"]: one["milliseconds"] for one in client.get("/v1/model").json()["operating_points"]}
    assert described[point.name] == times.milliseconds(point.policy, point.expected.exit_share) <= 1.5


def test_a_budget_chooses_the_point(
    client: TestClient, model: Model, digit_files: list[bytes], as_json: AsJson
) -> None:
    for budget in (0.4, 0.9):
        answer = client.post("/v1/predict", json=as_json(digit_files[:1], budget=budget)).json()
        assert answer["operating_point"] == model.engine.family.for_budget(budget).name
    assert model.operating_point == "full"


def test_an_explanation_agrees_with_the_engine_at_every_point(
    client: TestClient, model: Model, digit_files: list[bytes], as_json: AsJson
) -> None:
    for file in digit_files[:10]:
        answer = client.post("/v1/predict", json=as_json([file], explain=True)).json()["answers"][0]
        points = answer["explanation"]["points"]
        assert [seen["operating_point"] for seen in points] == model.engine.family.names()
        for seen in points:
            (wanted,) = model.predict(Image.open(io.BytesIO(file)), operating_point=seen["operating_point"])
            assert (seen["label"], seen["exit"]) == (wanted.label, wanted.exit)
            assert (seen["confidence"], seen["cost"]) == (wanted.confidence, wanted.cost)
            assert seen["confidence_by_exit"][seen["exit"] - 1] == seen["confidence"]
            assert len(seen["label_by_exit"]) == 3


@pytest.mark.parametrize("more", [{}, {"explain": True}, {"top": 1}])
def test_a_response_has_the_documented_fields(
    client: TestClient, digit_files: list[bytes], as_json: AsJson, more: dict[str, Any]
) -> None:
    response = client.post("/v1/predict", json={**as_json(digit_files[:1]), **more})
    assert PredictResponse.model_validate_json(response.content, strict=True).model_dump() == response.json()


def test_there_is_no_explanation_by_default(client: TestClient, digit_files: list[bytes], as_json: AsJson) -> None:
    assert client.post("/v1/predict", json=as_json(digit_files[:1])).json()["answers"][0]["explanation"] is None


GREY = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
GOOD = encoded(GREY, "PNG")
TRUNCATED_JPEG = encoded(Image.effect_noise((64, 64), 90), "JPEG")[:-100]
FLIPPED_BIT = bytearray(encoded(Image.effect_noise((64, 64), 90), "PNG"))
FLIPPED_BIT[1000] ^= 4
REFUSED_IMAGES = {
    "one bit flipped": (bytes(FLIPPED_BIT), 422, "is damaged (a checksum does not match)"),
    "truncated JPEG": (TRUNCATED_JPEG, 422, "truncated or damaged (image file is truncated"),
    "not an image": (b"hello, I am text", 422, "is not an image or is damaged"),
    "empty": (b"", 422, "is empty"),
    "truncated": (encoded(Image.effect_noise((64, 64), 90), "PNG")[:900], 422, "truncated or damaged"),
    "floating-point": (encoded(Image.fromarray(np.ones((8, 8), np.float32)), "TIFF"), 422, "floating-point pixels"),
    "20,000 x 20,000": (encoded(Image.new("1", (20_000, 20_000)), "PNG"), 413, "pixels"),
    "over the limit": (encoded(Image.new("L", (5001, 5000)), "PNG"), 413, "5001 x 5000 pixels"),
}


@pytest.mark.parametrize("what", REFUSED_IMAGES)
def test_the_message_names_the_bad_image(client: TestClient, what: str) -> None:
    content, status, reason = REFUSED_IMAGES[what]
    answer = client.post("/v1/predict", files=[("image", ("good.png", GOOD)), ("image", ("<i>bad</i>.png", content))])
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"].startswith("<i>bad</i>.png ")
    assert reason in answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert client.post("/v1/predict", files={"image": ("good.png", GOOD)}).status_code == 200


def test_unusual_images_are_read(client: TestClient, model: Model) -> None:
    rotated = Image.Exif()
    rotated[0x0112] = 6
    frames = [Image.new("L", (8, 8), level) for level in (10, 200)]
    odd = {
        "1 x 1": encoded(Image.new("RGB", (1, 1), "white"), "PNG"),
        "rotated": encoded(GREY, "JPEG", exif=rotated, quality=95),
        "animated": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "palette": encoded(GREY.convert("P"), "PNG"),
    }
    answers = client.post("/v1/predict", files=[("image", item) for item in odd.items()]).json()["answers"]
    expected = model.predict([Image.open(io.BytesIO(content)) for content in odd.values()])
    assert [answer["confidence"] for answer in answers] == [wanted.confidence for wanted in expected]


@pytest.mark.parametrize(
    ("request_parts", "status", "reason"),
    [
        (
            {"content": b"x", "headers": {"content-type": "text/plain"}},
            415,
            "content type 'text/plain' is not supported",
        ),
        ({"content": b"x"}, 415, "content type '' is not supported"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "not JSON"),
        ({"json": {"images": ["n o"]}}, 400, "image 1 is not base64"),
        ({"json": {"image": "AAAA"}}, 422, "unknown field 'image'; did you mean 'images'?"),
        ({"json": {"images": ["AAAA"], "operating_point": "ful"}}, 422, "did you mean 'full'?"),
        ({"json": {"images": ["AAAA"], "budget": 0.001}}, 422, "no operating point has a mean cost within"),
        ({"json": {"images": ["AAAA"], "operating_point": "full", "budget": 1.0}}, 422, "send one of them"),
        (
            {"json": {"images": ["AAAA", "AAAA"], "explain": True}},
            422,
            "explain takes one image, the request has 2; send one image",
        ),
        ({"json": {"images": ["AAAA"] * 33}}, 413, "33 images, the limit is 32"),
        ({"files": {"image": ("a", GOOD)}, "data": {"budget": "nan"}}, 422, "budget 'nan' is not a number"),
        ({"files": {"image": ("a", GOOD)}, "data": {"budget": "5s"}}, 422, "or a time such as 5ms"),
        ({"files": {"image": ("a", GOOD)}, "data": {"top": "1.5"}}, 422, "top=1.5 must be an integer of 1 or more"),
        (
            {"files": {"image": ("a", GOOD)}, "data": {"colour": "red"}},
            400,
            "unknown field 'colour'; choose from: image, operating_point, budget, top, explain",
        ),
        ({"files": {"picture": ("a", GOOD)}}, 400, "unknown file field 'picture'; send images in the field 'image'"),
        (
            {"content": b"", "headers": {"content-type": "multipart/form-data"}},
            400,
            "the multipart content type has no boundary",
        ),
        (
            {"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=b"}},
            400,
            "the multipart body is malformed",
        ),
        (
            {
                "content": b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\nabc',
                "headers": {"content-type": "multipart/form-data; boundary=b"},
            },
            400,
            "the multipart body is truncated",
        ),
    ],
)
def test_bad_requests_are_refused(client: TestClient, request_parts: dict[str, Any], status: int, reason: str) -> None:
    answer = client.post("/v1/predict", **request_parts)
    assert answer.status_code == status, answer.text
    assert reason in answer.json()["error"]


def test_max_pixels_limits_one_image(make_client: Callable[..., TestClient]) -> None:
    client = make_client(max_pixels=63)
    response = client.post("/v1/predict", files={"image": ("a", GOOD)})
    assert response.status_code == 413
    assert response.json() == {"error": "a has 8 x 8 pixels, the limit is 63; make it smaller"}


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
def test_large_images_are_decoded_in_another_thread(
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


@pytest.fixture(scope="module")
def huge() -> bytes:
    """An image with enough pixels for a warning of Pillow, and too few for its error."""
    file = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(file, format="PNG")
    return file.getvalue()


def test_pillow_does_not_warn_about_large_images(make_client: Callable[..., TestClient], huge: bytes) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        answer = make_client().post("/v1/predict", files={"image": ("huge.png", huge)})
    assert answer.status_code == 413
    assert answer.json()["error"] == "huge.png has 10000 x 10000 pixels, the limit is 24,000,000; make it smaller"
    assert [str(one.message) for one in warned] == []


@pytest.fixture(scope="module")
def many_pixels() -> bytes:
    """A PNG of 24 million pixels in 3 kilobytes."""
    return encoded(Image.new("1", (6000, 4000)), "PNG")


def test_the_pixels_of_a_request_are_limited_before_decoding(
    client: TestClient, many_pixels: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Preprocess, "pixels", lambda *_: pytest.fail("an image was decoded"))
    assert len(many_pixels) < 10_000
    response = client.post("/v1/predict", files=[("image", ("a.png", many_pixels))] * 5)
    assert response.status_code == 413
    assert response.json() == {
        "error": "the images of the request have more than 96,000,000 pixels in all; send fewer or smaller images"
    }


def test_pixels_are_reserved_while_one_image_at_a_time_is_decoded(
    client: TestClient, many_pixels: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    admission = service.admission
    real: Callable[..., Any] = Preprocess.pixels
    reserved: list[int] = []
    decoded: list[weakref.ref[OpenImage]] = []

    def seen(preprocess: Preprocess, image: OpenImage) -> Any:
        assert [one for one in decoded if one() is not None] == [], "the previous image is still in memory"
        decoded.append(weakref.ref(image))
        reserved.append(admission.held_pixels)
        assert service.decode_budget._used == (24_000_000 if image.pixels == 24_000_000 else 0)
        return real(preprocess, image)

    monkeypatch.setattr(Preprocess, "pixels", seen)
    response = client.post("/v1/predict", files=[("image", (name, many_pixels)) for name in ("a.png", "b.png")])
    assert [one["name"] for one in response.json()["answers"]] == ["a.png", "b.png"]
    assert reserved == [48_000_000] * 2
    assert admission.held_pixels == 0
    # Released after an error as well.
    files = [("image", ("a.png", GOOD)), ("image", ("b.png", TRUNCATED_JPEG))]
    assert client.post("/v1/predict", files=files).status_code == 422
    assert reserved[2:] == [64 + 64 * 64] * 2
    assert admission.held_pixels == 0


def test_an_error_does_not_keep_the_image_in_memory(client: TestClient) -> None:
    preprocess = client.app.state.service.model.preprocess  # type: ignore[attr-defined]
    opened: list[weakref.ref[OpenImage]] = []

    def damaged() -> OpenImage:
        image = predict.open_upload(Upload("a.png", TRUNCATED_JPEG), Limits())
        opened.append(weakref.ref(image))
        return image

    with pytest.raises(ApiError, match=r"a\.png is truncated or damaged") as refused:
        predict._decode(damaged(), preprocess)
    assert (refused.value.status, opened[0]()) == (422, None)


def test_the_pixels_of_all_requests_are_limited(client: TestClient, many_pixels: bytes) -> None:
    admission = client.app.state.service.admission  # type: ignore[attr-defined]
    files = {"image": ("a.png", many_pixels)}
    with admission.admit() as slot, slot.reserve_pixels(360_000_001):
        response = client.post("/v1/predict", files=files)
        assert response.status_code == 503
        assert response.json() == {
            "error": "the requests in progress decode 360,000,001 of at most 384,000,000 pixels; try again later"
        }
        assert int(response.headers["retry-after"]) >= 1
        assert admission.held_pixels == 360_000_001
    with admission.admit() as slot, slot.reserve_pixels(360_000_000):
        assert client.post("/v1/predict", files=files).status_code == 200


def test_a_request_has_a_time_budget(make_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch) -> None:
    client = make_client(request_seconds=0.05)
    service = client.app.state.service  # type: ignore[attr-defined]
    left: list[Any] = []
    monkeypatch.setattr(service.batcher, "submit", lambda future, *_, **__: left.append(future))
    response = client.post("/v1/predict", files={"image": ("a", GOOD)})
    assert (response.status_code, response.json()) == (
        503,
        {"error": "the request took longer than 0.05 s; try again later"},
    )
    assert int(response.headers["retry-after"]) >= 1
    # A future that is done is not computed any more.
    assert left[0].cancelled()
    assert (service.admission.requests, service.admission.held_bytes, service.admission.held_pixels) == (0, 0, 0)
