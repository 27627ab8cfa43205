"""All routes except predict: model, operating point and its token, health, samples, web page."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.errors import RequestError, WorkError
from elfnet.inference.model import Model
from elfnet.serve.app import PAGE, create_app, read_token
from elfnet.serve.service import Sample, Service

Make = Callable[..., TestClient]
POINT = "/v1/operating-point"


def test_the_model_is_described(client: TestClient, model: Model) -> None:
    described = client.get("/v1/model").json()
    assert described["class_names"] == list(model.class_names)
    assert described["image"] == {"mode": "L", "height": 8, "width": 8}
    points = [{**point.to_dict(), "milliseconds": None} for point in model.engine.family.points]
    assert described["operating_points"] == points
    assert described["timing"] is None
    assert described["limits"] == {
        "body_bytes": 16_000_000,
        "images": 32,
        "pixels": 24_000_000,
        "request_pixels": 96_000_000,
    }


def test_the_description_of_the_model_is_made_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    before = client.get("/v1/model").content
    monkeypatch.setattr(OperatingPoint, "to_dict", lambda _: pytest.fail("made again for a request"))
    assert client.get("/v1/model").content == before


def test_a_service_without_a_token_refuses_to_change_the_point(client: TestClient) -> None:
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
        response = client.put(POINT, json={"operating_point": "s=0.5"}, headers=headers)
        assert response.status_code == 403
        assert "this service has no token" in response.json()["error"]
    assert client.get(POINT).json() == {"operating_point": "full", "now": "full", "shedding": False}


def test_the_point_is_changed_only_with_the_token(make_client: Make, model: Model) -> None:
    client = make_client(token="gëheim")
    wrong = (None, "Bearer", "Bearer geheim", "Basic gëheim", "Bearer gëheim2", "gëheim")
    for given in wrong:
        headers = {} if given is None else {b"authorization": given.encode()}
        response = client.put(POINT, json={"operating_point": "s=0.5"}, headers=headers)
        assert response.status_code == 401, given
        assert "the token is missing or wrong" in response.json()["error"]
        assert response.headers["www-authenticate"] == "Bearer"
        assert model.operating_point == "full"
    right = {b"authorization": "Bearer gëheim".encode()}
    assert client.put(POINT, json={"operating_point": "s=0.5"}, headers=right).json()["now"] == "s=0.5"
    by_budget = client.put(POINT, json={"budget": 0.9}, headers=right).json()["now"]
    assert by_budget == model.operating_point == model.engine.family.for_budget(0.9).name


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "not JSON"),
        (b"{}", 422, "send either operating_point or budget"),
        (b'{"operating_point": "full", "budget": 1}', 422, "send either operating_point or budget"),
        (b'{"operating_point": "fu"}', 422, "unknown operating point 'fu'"),
        (b'{"budget": 0.0}', 422, "the cheapest is"),
        (b'{"x": 1}', 422, "unknown field 'x'; choose from: operating_point, budget"),
        (b'{"budget": "0.5"}', 422, "budget must be a finite number, or a time per image as text, such as 5ms"),
        (b'{"budget": 1e999}', 422, "budget must be a finite number, or a time per image as text, such as 5ms"),
        (b" " * 20_000, 413, "the limit is 10,000"),
    ],
)
def test_a_bad_operating_point_is_refused(
    make_client: Make, model: Model, body: bytes, status: int, reason: str
) -> None:
    response = make_client(token="t").put(POINT, content=body, headers={"Authorization": "Bearer t"})
    assert response.status_code == status
    assert reason in response.json()["error"]
    assert model.operating_point == "full"


def test_the_token_is_read_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELFNET_TOKEN", raising=False)
    assert read_token(None) is None
    with monkeypatch.context() as patch:
        patch.setenv("ELFNET_TOKEN", " from-environment\n")
        assert read_token(None) == "from-environment"
    file = tmp_path / "token"
    with pytest.raises(WorkError, match="cannot read the token"):
        read_token(file)
    file.write_text("\n")
    with pytest.raises(RequestError, match="has no token; write the token into its first line"):
        read_token(file)
    file.write_text("from-file\n")
    assert read_token(file) == "from-file"


def test_health_and_readiness(model: Model) -> None:
    service = Service(model, name="digits")
    app = create_app(service)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready"}
        service.batcher.close()
        assert client.get("/healthz").status_code == 200
        response = client.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"error": "the engine is not running"})


def test_the_page_uses_no_other_host() -> None:
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
        response = client.get(path)
        assert (response.status_code, response.json()) == (404, {"error": "not found; /openapi.json lists the routes"})


def test_samples_are_listed_and_returned(model: Model, digit_files: list[bytes]) -> None:
    service = Service(model, name="digits", samples=(Sample("a <b>.png", digit_files[0], "image/png"),))
    with TestClient(create_app(service), base_url="http://localhost") as client:
        assert client.get("/v1/samples").json() == [{"name": "a <b>.png", "url": "/v1/samples/0"}]
        found = client.get("/v1/samples/0")
        assert (found.content, found.headers["content-type"]) == (digit_files[0], "image/png")
        for number, status, message in (
            ("1", 404, "there is no sample 1; /v1/samples lists them"),
            ("-1", 404, "there is no sample -1; /v1/samples lists them"),
            ("x", 422, "number must be an integer"),
        ):
            response = client.get(f"/v1/samples/{number}")
            assert (response.status_code, response.json()) == (status, {"error": message})
