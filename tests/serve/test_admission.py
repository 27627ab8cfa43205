"""Limits on requests and bytes in progress, and reading a body within them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from starlette.testclient import TestClient

from elfnet.serve.admission import Admission, DecodeBudget
from elfnet.serve.errors import ApiError
from elfnet.serve.service import Service


def test_requests_and_bytes_are_limited_and_released() -> None:
    admission = Admission(max_requests=2, max_bytes=100, max_pixels=1000, retry_after=lambda: 7)
    with admission.admit() as first, admission.admit() as second:
        first.reserve_bytes(60)
        second.reserve_bytes(40)
        with pytest.raises(ApiError, match=r"hold 100 of at most 100 bytes; try again later") as refused:
            second.reserve_bytes(1)
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "7"})
        with pytest.raises(ApiError, match="2 requests are in progress; try again later"), admission.admit():
            pass
        assert (admission.requests, admission.held_bytes) == (2, 100)
    assert (admission.requests, admission.held_bytes) == (0, 0)
    with suppress(ZeroDivisionError), admission.admit() as slot:
        slot.reserve_bytes(100)
        raise ZeroDivisionError
    assert (admission.requests, admission.held_bytes) == (0, 0)


def test_pixels_are_limited_and_released() -> None:
    admission = Admission(max_requests=2, max_bytes=100, max_pixels=1000, retry_after=lambda: 7)
    with admission.admit() as first, admission.admit() as second:
        with first.reserve_pixels(600):
            with pytest.raises(ApiError, match="decode 600 of at most 1,000 pixels; try again later") as refused:
                second.reserve_pixels(401).__enter__()
            assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "7"})
            with suppress(ZeroDivisionError), second.reserve_pixels(400):
                assert admission.held_pixels == 1000
                raise ZeroDivisionError
            assert admission.held_pixels == 600
        assert admission.held_pixels == 0


def test_decoding_waits_for_pixels_in_the_order_of_the_calls() -> None:
    budget = DecodeBudget(100)
    order: list[int] = []
    gate = threading.Event()

    def decode(pixels: int) -> None:
        with budget.use(pixels):
            order.append(pixels)
            assert gate.wait(30)

    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(decode, 60)]
        while order != [60]:
            pass
        done.append(threads.submit(decode, 90))
        # The second image waits, and the third one, which would fit, waits behind it.
        while not budget._turn.locked() and len(order) == 1:
            pass
        done.append(threads.submit(decode, 20))
        assert order == [60]
        gate.set()
        for one in done:
            one.result(30)
    assert order == [60, 90, 20]
    assert budget._used == 0


def test_too_many_requests_are_refused_with_retry_after(
    make_client: Callable[..., TestClient], digit_files: list[bytes], as_json: Callable[..., dict[str, Any]]
) -> None:
    client = make_client(max_requests=1)
    service: Service = client.app.state.service  # type: ignore[attr-defined]
    with service.admission.admit():
        response = client.post("/v1/predict", json=as_json(digit_files[:1]))
    assert response.status_code == 503
    assert response.json() == {"error": "1 requests are in progress; try again later"}
    assert int(response.headers["retry-after"]) >= 1
    assert client.get("/v1/traffic").json()["refused"] == 1
    assert client.post("/v1/predict", json=as_json(digit_files[:1])).status_code == 200


def test_large_bodies_are_refused_with_and_without_content_length(
    make_client: Callable[..., TestClient], digit_files: list[bytes]
) -> None:
    client = make_client(max_body_bytes=10_000)
    with_length = client.post("/v1/predict", files={"image": ("a", bytes(20_000))})
    streamed = client.post(
        "/v1/predict", content=iter([bytes(6_000), bytes(6_000)]), headers={"content-type": "application/json"}
    )
    assert with_length.status_code == streamed.status_code == 413
    assert "bytes, the limit is 10,000; send less" in with_length.json()["error"]
    assert streamed.json() == {"error": "the request has more than 10,000 bytes; send less"}
    # A body that was received completely is not drained.
    assert (with_length.headers.get("connection"), streamed.headers.get("connection")) == ("close", None)
    assert client.post("/v1/predict", files={"image": ("a", digit_files[0])}).status_code == 200
