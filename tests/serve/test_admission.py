"""Places are given back, whatever happens."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from starlette.testclient import TestClient

from elfnet.serve.admission import Admission
from elfnet.serve.errors import Refusal
from elfnet.serve.service import Service


def test_requests_and_bytes_are_bounded_and_given_back() -> None:
    admission = Admission(2, 100, lambda: 7)
    with admission.admit() as first, admission.admit() as second:
        first.hold(60)
        second.hold(40)
        with pytest.raises(Refusal, match="too many bytes") as refused:
            second.hold(1)
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "7"})
        with pytest.raises(Refusal, match="2 requests are being served"), admission.admit():
            pass
        assert (admission.requests, admission.held_bytes) == (2, 100)
    assert (admission.requests, admission.held_bytes) == (0, 0)
    with suppress(ZeroDivisionError), admission.admit() as place:
        place.hold(100)
        raise ZeroDivisionError
    assert (admission.requests, admission.held_bytes) == (0, 0)


def test_a_full_service_refuses_with_a_time_to_come_back(
    make_client: Callable[..., TestClient], digit_files: list[bytes], as_json: Callable[..., dict[str, Any]]
) -> None:
    client = make_client(max_requests=1)
    service: Service = client.app.state.service  # type: ignore[attr-defined]
    with service.admission.admit():
        answer = client.post("/v1/predict", json=as_json(digit_files[:1]))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert client.get("/v1/traffic").json()["refused"] == 1
    assert client.post("/v1/predict", json=as_json(digit_files[:1])).status_code == 200


def test_huge_bodies_are_refused_announced_or_not(
    make_client: Callable[..., TestClient], digit_files: list[bytes]
) -> None:
    client = make_client(max_body_bytes=10_000)
    announced = client.post("/v1/predict", files={"image": ("a", bytes(20_000))})
    streamed = client.post(
        "/v1/predict", content=iter([bytes(6_000), bytes(6_000)]), headers={"content-type": "application/json"}
    )
    for answer in (announced, streamed):
        assert answer.status_code == 413
        assert "10,000" in answer.json()["error"]
    # Nobody waits for the rest of what has come whole.
    assert (announced.headers.get("connection"), streamed.headers.get("connection")) == ("close", None)
    assert client.post("/v1/predict", files={"image": ("a", digit_files[0])}).status_code == 200
