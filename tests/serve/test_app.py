"""Health, figures, headers, samples and the page's files."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from elfnet.deploy.model import Model
from elfnet.errors import RequestError
from elfnet.serve.app import create_app
from elfnet.serve.routes import PAGE
from elfnet.serve.service import ServeSettings, Service, read_samples


def figure(client: TestClient, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(value)


def test_health_and_readiness(model: Model) -> None:
    service = Service(model, name="digits")
    app = create_app(service)
    with TestClient(app) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready"}
        service.batcher.close()
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503


def test_metrics_count_what_happened(
    client: TestClient, model: Model, digit_files: list[bytes], as_json: Callable[..., dict[str, Any]]
) -> None:
    answers = client.post("/v1/predict", json=as_json(digit_files[:20], operating_point="s=0.5")).json()["answers"]
    client.post("/v1/predict", content=b"x")
    client.get("/v1/model")
    client.get("/someone/wrote/this")
    assert figure(client, 'elfnet_requests_total{route="/v1/predict",status="200"}') == 1
    assert figure(client, 'elfnet_requests_total{route="/v1/predict",status="415"}') == 1
    assert figure(client, 'elfnet_requests_total{route="other",status="404"}') == 1
    assert "someone" not in client.get("/metrics").text
    assert figure(client, 'elfnet_images_total{operating_point="s=0.5"}') == 20
    for k in (1, 2, 3):
        seen = sum(answer["exit"] == k for answer in answers)
        assert figure(client, f'elfnet_exit_images_total{{exit="{k}"}}') == seen
    cost = sum(answer["cost"] for answer in answers)
    assert figure(client, "elfnet_cost_total") == pytest.approx(cost)
    assert figure(client, "elfnet_mean_cost") == pytest.approx(cost / 20)
    expected = model.operating_points["s=0.5"].expected.mean_cost
    assert figure(client, "elfnet_mean_cost_expected") == pytest.approx(expected)
    assert figure(client, "elfnet_exit_drift") != figure(client, "elfnet_exit_drift")  # NaN: too few
    assert figure(client, "elfnet_queue_images") == figure(client, "elfnet_requests_held") == 0
    assert figure(client, "elfnet_held_bytes") == 0
    for _ in range(5):
        client.post("/v1/predict", json=as_json(digit_files[:20], operating_point="s=0.5"))
    assert figure(client, "elfnet_exit_drift") >= 0
    traffic = client.get("/v1/traffic").json()
    assert (traffic["requests"], traffic["refused"], traffic["recent"]["images"]) == (7, 0, 120)
    assert traffic["p95_ms"] >= traffic["p50_ms"] > 0


def test_other_methods_of_the_busy_route_are_answered_too(client: TestClient) -> None:
    answer = client.get("/v1/predict")
    assert (answer.status_code, answer.json()) == (405, {"error": "GET is not answered here"})


@pytest.mark.parametrize("path", ["/", "/v1/model", "/page/app.js", "/nothing", "/metrics"])
def test_every_answer_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path, headers={"Origin": "http://elsewhere.example"}).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_the_page_asks_no_other_host() -> None:
    files = sorted(path for path in PAGE.iterdir() if path.suffix in (".html", ".js", ".css"))
    assert len(files) > 5
    for path in files:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.", text), path.name
        assert "innerHTML" not in text, path.name
        if path.suffix == ".html":
            assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", text)


def test_files_outside_the_page_are_not_served(client: TestClient) -> None:
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py"):
        assert client.get(path).status_code == 404


def test_openapi_describes_the_service(client: TestClient) -> None:
    told = client.get("/openapi.json").json()
    assert {"/v1/predict", "/v1/model", "/v1/operating-point", "/healthz", "/readyz", "/metrics"} <= set(told["paths"])
    body = told["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "application/json"}
    # Every reference leads somewhere.
    for name in re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(told)):
        assert name in told["components"]["schemas"]
    assert client.get("/docs").status_code == 404


def test_samples_are_the_images_of_a_folder(model: Model, tmp_path: Path, digit_files: list[bytes]) -> None:
    (tmp_path / "a <b>.png").write_bytes(digit_files[0])
    (tmp_path / "b.png").write_text("no image")
    (tmp_path / "c.txt").write_text("text")
    (tmp_path / ".hidden.png").write_bytes(digit_files[1])
    samples = read_samples(tmp_path)
    assert [sample.name for sample in samples] == ["a <b>.png"]
    with TestClient(create_app(Service(model, name="digits", samples=samples))) as client:
        assert client.get("/v1/samples").json() == [{"name": "a <b>.png", "url": "/v1/samples/0"}]
        found = client.get("/v1/samples/0")
        assert (found.content, found.headers["content-type"]) == (digit_files[0], "image/png")
        for number, status in (("1", 404), ("-1", 404), ("x", 422)):
            assert client.get(f"/v1/samples/{number}").status_code == status
    (tmp_path / "a <b>.png").unlink()
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(RequestError, match="--samples"):
            read_samples(place)


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch": 0},
        {"wait_ms": -1.0},
        {"max_images": 9, "max_queue": 8},
        {"max_body_bytes": 11, "max_held_bytes": 10},
        {"read_seconds": 0.0},
    ],
)
def test_settings_that_contradict_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        ServeSettings(**wrong)
