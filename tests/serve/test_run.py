"""Over a real socket: slow clients, clients that hang up, a crowd, and the end."""

import http.client
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.deploy.engine import Answers
from elfnet.errors import RequestError, WorkError
from elfnet.serve.server import listen

AsJson = Callable[..., dict[str, Any]]


def post(port: int, body: dict[str, Any]) -> tuple[int, dict[str, str], dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v1/predict", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())
    finally:
        connection.close()


HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


def test_slow_clients_and_those_who_hang_up(
    live: Callable[..., Any], digit_files: list[bytes], as_json: AsJson
) -> None:
    running = live(read_seconds=0.2)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as slow:
        slow.sendall(HEAD + b"{")
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as gone:
        gone.sendall(HEAD + b"{")
    assert post(running.port, as_json(digit_files[:1]))[0] == 200
    assert running.service.admission.requests == 0


def test_a_crowd_gets_200_or_503_and_nothing_else(
    live: Callable[..., Any], digit_files: list[bytes], as_json: AsJson, model: Any
) -> None:
    """While the engine is held, the bound is reached: those beyond are refused at once, the others are answered."""
    door, real = threading.Event(), model.engine
    calls: list[str] = []

    class Held:
        family, backend = real.family, real.backend
        operating_point = "full"

        def exits_in_use(self, _point: str) -> tuple[bool, ...]:
            return (True,)  # one call to warm up

        def __call__(self, images: NDArray[np.float32], *, operating_point: str) -> Answers:
            if calls:
                assert door.wait(30)
            calls.append(operating_point)
            answers: Answers = real(images, operating_point=operating_point)
            return answers

    model.engine = Held()
    running = live(max_queue=8, max_batch=4, max_images=8, shed_by_budget=False)
    body = as_json(digit_files[:1])
    with ThreadPoolExecutor(30) as crowd:
        asked = [crowd.submit(post, running.port, body) for _ in range(30)]
        # At most 8 wait and 4 are being computed; the others are refused while the door is still shut.
        refused = 0
        while refused < 30 - 12:
            refused = sum(call.done() for call in asked)
        door.set()
        answers = [call.result() for call in asked]
    assert {status for status, _, _ in answers} == {200, 503}
    for status, headers, content in answers:
        if status == 503:
            assert int(headers["retry-after"]) >= 1
            assert "waiting already" in content["error"]
        else:
            assert content["answers"][0]["label"]
    assert post(running.port, body)[0] == 200


def test_the_end_finishes_what_was_taken(
    live: Callable[..., Any], digit_files: list[bytes], as_json: AsJson, model: Any
) -> None:
    running = live()
    assert post(running.port, as_json(digit_files[:1]))[0] == 200
    inside, door, real = threading.Event(), threading.Event(), type(model.preprocess).normalise

    def held(preprocess: Any, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        inside.set()
        assert door.wait(30)
        made: NDArray[np.float32] = real(preprocess, pixels)
        return made

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as client:
        patch.setattr(type(model.preprocess), "normalise", held)
        asked = client.submit(post, running.port, as_json(digit_files[:1]))
        assert inside.wait(30)
        running.stop()
        door.set()
        assert asked.result()[0] == 200
        running.join()


def test_a_port_in_use_is_one_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(WorkError, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)
    with pytest.raises(RequestError, match="port 99999 does not exist"):
        listen("127.0.0.1", 99999)
