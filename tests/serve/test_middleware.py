"""Every response has the security headers, and an internal error is a response of one line."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from elfnet.inference.model import Model


@pytest.mark.parametrize("path", ["/", "/v1/model", "/page/app.js", "/nothing", "/metrics"])
def test_every_response_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path, headers={"Origin": "http://elsewhere.example"}).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_an_internal_error_is_one_line_and_the_service_continues(
    client: TestClient,
    model: Model,
    digit_files: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(images_NHWK: NDArray[np.uint8]) -> None:
        raise ZeroDivisionError(f"secret {len(images_NHWK)}")

    with monkeypatch.context() as patch:
        patch.setattr(type(model.preprocess), "normalise", lambda _self, pixels: broken(pixels))
        response = client.post("/v1/predict", files={"image": ("a", digit_files[0])})
    assert (response.status_code, response.json()) == (500, {"error": "internal error; see the log of the service"})
    assert "ZeroDivisionError" in caplog.text
    assert client.post("/v1/predict", files={"image": ("a", digit_files[0])}).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8000", 200),
        ("localhost.", 200),
        ("127.0.0.1", 200),
        ("127.0.0.2:8000", 200),
        ("[::1]:8000", 200),
        ("[::1]", 200),
        ("10.1.2.3:8000", 200),
        ("models.example", 200),
        ("Models.Example:80", 200),
        ("[fd00::1]:80", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.1.2.4", 421),
        ("[fd00::2]", 421),
        ("models.example.evil.example", 421),
        ("", 421),
        ("\xff\x00", 421),
    ],
)
def test_only_requests_for_allowed_hosts_are_served(
    make_client: Callable[..., TestClient], host: str, status: int
) -> None:
    client = make_client(allowed_hosts=("models.example", "FD00:0::1"))
    # The client connects to 10.1.2.3, and sends another name or address in the header.
    for path in ("/v1/model", "/v1/predict"):
        response = client.get(f"http://10.1.2.3{path}", headers={b"host": host.encode("latin-1")})
        assert response.status_code == (status if path == "/v1/model" or status != 200 else 405)
        if status == 421:
            assert response.json()["error"].endswith("is not allowed; start the service with --allow-host to allow it")
            assert "content-security-policy" in response.headers


def test_the_message_names_the_refused_host(client: TestClient) -> None:
    response = client.get("/v1/model", headers={"host": "evil.example:80"})
    message = "host 'evil.example' is not allowed; start the service with --allow-host to allow it"
    assert (response.status_code, response.json()) == (421, {"error": message})
    assert len(client.get("/", headers={"host": "x" * 5000}).json()["error"]) < 300


def test_all_hosts_can_be_allowed(make_client: Callable[..., TestClient]) -> None:
    client = make_client(allowed_hosts=("*",))
    assert client.get("/v1/model", headers={"host": "any.example"}).status_code == 200


SITE = "https://shop.example"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Origin": "http://localhost"}, 415),
        ({"Origin": "HTTP://LocalHost"}, 415),
        ({"Origin": SITE, "Sec-Fetch-Site": "same-origin"}, 415),  # behind a proxy that changes the host
        ({"Sec-Fetch-Site": "none"}, 415),
        ({"Origin": SITE}, 403),
        ({"Origin": "http://localhost:81"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(client: TestClient, headers: dict[str, str], status: int) -> None:
    response = client.post("/v1/predict", headers=headers)
    assert response.status_code == status
    assert ("may not use this service; start it with --allow-origin" in response.json()["error"]) == (status == 403)
    assert client.get("/healthz", headers=headers).status_code == 200
    assert "access-control-allow-origin" not in client.get("/healthz", headers=headers).headers


def test_an_allowed_origin_may_send_and_read(make_client: Callable[..., TestClient]) -> None:
    client = make_client(allowed_origins=(SITE,))
    of_site = {"Origin": SITE, "Sec-Fetch-Site": "cross-site"}
    response = client.post("/v1/predict", headers=of_site)
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (415, SITE)
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    assert client.options("/v1/predict", headers={**of_site, **asked}).status_code == 200
    other = {"Origin": "https://shop.example.evil.example"}
    assert client.post("/v1/predict", headers=other).status_code == 403
    assert client.options("/v1/predict", headers={**other, **asked}).status_code == 403
