"""What the model says of itself, and who may change the operating point."""

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from elfnet.deploy.model import Model
from elfnet.errors import RequestError, WorkError
from elfnet.serve.routes import find_token

Make = Callable[..., TestClient]
POINT = "/v1/operating-point"


def test_the_model_is_described(client: TestClient, model: Model) -> None:
    told = client.get("/v1/model").json()
    assert told["class_names"] == list(model.class_names)
    assert told["image"] == {"mode": "L", "height": 8, "width": 8}
    assert told["operating_points"] == [point.to_dict() for point in model.engine.family.points]
    assert told["limits"] == {"body_bytes": 16_000_000, "images": 32, "pixels": 24_000_000}


def test_without_a_token_nobody_changes_the_point(client: TestClient) -> None:
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
        answer = client.put(POINT, json={"operating_point": "s=0.5"}, headers=headers)
        assert answer.status_code == 403
    assert client.get(POINT).json() == {"operating_point": "full", "now": "full", "shedding": False}


def test_only_the_token_changes_the_point(make_client: Make, model: Model) -> None:
    client = make_client(token="gëheim")
    wrong = (None, "Bearer", "Bearer geheim", "Basic gëheim", "Bearer gëheim2", "gëheim")
    for given in wrong:
        headers = {} if given is None else {b"authorization": given.encode()}
        answer = client.put(POINT, json={"operating_point": "s=0.5"}, headers=headers)
        assert answer.status_code == 401, given
        assert answer.headers["www-authenticate"] == "Bearer"
        assert model.operating_point == "full"
    right = {b"authorization": "Bearer gëheim".encode()}
    assert client.put(POINT, json={"operating_point": "s=0.5"}, headers=right).json()["now"] == "s=0.5"
    by_budget = client.put(POINT, json={"budget": 0.9}, headers=right).json()["now"]
    assert by_budget == model.operating_point == model.engine.family.for_budget(0.9).name


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "not JSON"),
        (b"{}", 422, "send operating_point or budget"),
        (b'{"operating_point": "full", "budget": 1}', 422, "one of them"),
        (b'{"operating_point": "fu"}', 422, "unknown operating point 'fu'"),
        (b'{"budget": 0.0}', 422, "the cheapest is"),
        (b'{"x": 1}', 422, "unknown field 'x'; choose from: operating_point, budget"),
        (b'{"budget": "0.5"}', 422, "budget must be a number"),
        (b'{"budget": 1e999}', 422, "budget must be a finite number"),
        (b" " * 20_000, 413, "the limit is 10,000"),
    ],
)
def test_bad_changes_are_refused(make_client: Make, model: Model, body: bytes, status: int, reason: str) -> None:
    answer = make_client(token="t").put(POINT, content=body, headers={"Authorization": "Bearer t"})
    assert answer.status_code == status
    assert reason in answer.json()["error"]
    assert model.operating_point == "full"


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELFNET_TOKEN", raising=False)
    assert find_token(None) is None
    with monkeypatch.context() as patch:
        patch.setenv("ELFNET_TOKEN", " from-environment\n")
        assert find_token(None) == "from-environment"
    file = tmp_path / "token"
    with pytest.raises(WorkError, match="cannot read the token"):
        find_token(file)
    file.write_text("\n")
    with pytest.raises(RequestError, match="holds no token"):
        find_token(file)
    file.write_text("from-file\n")
    assert find_token(file) == "from-file"
