"""A service for a long time: changing load, faulty clients, another operating point every second.

Every valid request must get the answer that the model itself gives at the operating point that the response names, and
the memory of the service must not grow.
"""

import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import elfnet
from fault_case import Outcomes, damaged
from fault_http import STORED
from fault_images import image

START_SECONDS = 600.0
CLIENTS = 4
IMAGES = 40
MAX_REQUESTS_PER_SECOND = 40.0
"""Of all clients together, at the peaks of the load; it rises and falls once per `PERIOD_SECONDS`."""
PERIOD_SECONDS = 60.0
POINTS = ("full", "economic", "accurate")
MAX_GROWTH_BYTES = 16 * 2**20
"""How much the memory may differ between the second quarter of the time and the last."""
CONFIDENCE_DIGITS = 1e-4
"""Batches of other sizes are computed in another order."""


def run(seed: int, count: int, directory: Path) -> Outcomes:
    """Serve for `count` seconds."""
    outcomes = Outcomes()
    photos = [image("PNG", np.random.default_rng((seed, number))) for number in range(IMAGES)]
    expected = _expected(photos)
    with _service(directory) as (port, pid):
        # The connection waits until the worker has started.
        _ask(port, "GET", "/readyz", timeout=START_SECONDS)
        soak = _Soak(port, photos, expected, outcomes, ends=time.monotonic() + count)
        threads = [threading.Thread(target=soak.client, args=((seed, number),)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=soak.faulty_client, args=((seed, CLIENTS),)))
        threads.append(threading.Thread(target=soak.operator))
        for thread in threads:
            thread.start()
        memory = []
        while any(thread.is_alive() for thread in threads):
            memory.append(_memory(pid))
            time.sleep(1.0)
        for thread in threads:
            thread.join()
    _check_memory(outcomes, memory)
    return outcomes


class _Soak:
    """What the clients share."""

    def __init__(
        self,
        port: int,
        photos: list[bytes],
        expected: dict[str, list[tuple[int | None, int, float]]],
        outcomes: Outcomes,
        *,
        ends: float,
    ) -> None:
        self._port, self._photos, self._expected, self._outcomes, self._ends = port, photos, expected, outcomes, ends
        self._lock = threading.Lock()

    def client(self, seed: tuple[int, int]) -> None:
        """Send valid requests; another one follows after the answer, at the rate of the moment."""
        rng = np.random.default_rng(seed)
        while time.monotonic() < self._ends:
            chosen = rng.integers(len(self._photos), size=int(rng.integers(1, 5))).tolist()
            point = POINTS[int(rng.integers(len(POINTS)))] if rng.integers(2) else None
            self._count(*self._predict(chosen, point))
            share = 0.5 - 0.5 * math.cos(2 * math.pi * time.monotonic() / PERIOD_SECONDS)
            time.sleep(CLIENTS / (MAX_REQUESTS_PER_SECOND * (0.05 + 0.95 * share)))

    def faulty_client(self, seed: tuple[int, int]) -> None:
        """Send damaged images, garbage and half requests; leave without reading the answer now and then."""
        rng = np.random.default_rng(seed)
        while time.monotonic() < self._ends:
            body = _body([damaged(self._photos[int(rng.integers(len(self._photos)))], rng)], None)
            head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            content = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
            kind = int(rng.integers(4))
            if kind == 0:
                content = damaged(content, rng)
            elif kind == 1:
                content = content[: int(rng.integers(len(content)))]
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=30) as connection:
                connection.sendall(content)
                if kind != 2:
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):
                        pass
            self._count("faulty request", None)
            time.sleep(0.2)

    def operator(self) -> None:
        """Change the operating point every second."""
        number = 0
        while time.monotonic() < self._ends:
            name = POINTS[number % len(POINTS)]
            try:
                status, _ = _ask(self._port, "PUT", "/v1/operating-point", json.dumps({"operating_point": name}))
                self._count("operating point changed", None if status == 200 else f"PUT {name}: status {status}")
            except OSError as error:
                self._count("", f"PUT {name}: {error!r}")
            number += 1
            time.sleep(1.0)

    def _predict(self, chosen: list[int], point: str | None) -> tuple[str, str | None]:
        """Send a request; the outcome, and what was wrong with the answer."""
        try:
            status, answer = _ask(
                self._port, "POST", "/v1/predict", _body([self._photos[number] for number in chosen], point)
            )
        except OSError as error:
            return "", f"a valid request got no answer: {error!r}"
        if status == 503:
            return "refused: overloaded", None
        if status != 200:
            return "", f"a valid request got status {status}: {answer}"
        used = answer["operating_point"]
        if point is not None and used != point:
            return "", f"asked for {point}, answered at {used}"
        expected = [self._expected[used][number] for number in chosen]
        found = [(one["class_index"], one["exit"], one["confidence"]) for one in answer["answers"]]
        same = len(found) == len(expected) and all(
            a[:2] == b[:2] and abs(a[2] - b[2]) < CONFIDENCE_DIGITS for a, b in zip(found, expected, strict=True)
        )
        return "right answer", None if same else f"at {used}: {found} instead of {expected}"

    def _count(self, outcome: str, wrong: str | None) -> None:
        with self._lock:
            self._outcomes.add(outcome) if wrong is None else self._outcomes.fail(wrong)


def _expected(photos: list[bytes]) -> dict[str, list[tuple[int | None, int, float]]]:
    """What the model answers, by operating point."""
    model = elfnet.load(STORED / "bundle.elfnet", threads=1)
    return {
        point: [
            (one.class_index, one.exit, one.confidence) for one in model.predict(photos, operating_point=point, batch=1)
        ]
        for point in POINTS
    }


def _body(photos: list[bytes], point: str | None) -> bytes:
    import base64

    content: dict[str, Any] = {"images": [base64.b64encode(photo).decode() for photo in photos]}
    return json.dumps(content if point is None else {**content, "operating_point": point}).encode()


def _ask(
    port: int, method: str, path: str, body: bytes | str = b"", *, timeout: float = 120.0
) -> tuple[int, dict[str, Any]]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)) as connection:
        headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@contextmanager
def _service(directory: Path) -> Iterator[tuple[int, int]]:
    """Start the command with its supervised worker; yields its port and process id."""
    token = directory / "token"
    token.write_text("secret")
    command = [sys.executable, "-m", "elfnet", "serve", str(STORED / "bundle.elfnet"), "--port", "0"]
    with subprocess.Popen(
        [*command, "--token-file", str(token), "--threads", "1"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            port = int(process.stderr.readline().partition("127.0.0.1:")[2].partition("/")[0])
            # Messages of the service must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _memory(pid: int) -> int:
    """Resident bytes of the service: the process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = [int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in (str(pid), *children)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def _check_memory(outcomes: Outcomes, memory: list[int]) -> None:
    quarter = max(1, len(memory) // 4)
    early, late = float(np.median(memory[quarter : 2 * quarter])), float(np.median(memory[-quarter:]))
    outcomes.figures["megabytes in the second quarter"] = round(early / 2**20, 1)
    outcomes.figures["megabytes in the last quarter"] = round(late / 2**20, 1)
    if late - early > MAX_GROWTH_BYTES:
        outcomes.fail(f"the memory grew from {early / 2**20:.1f} to {late / 2**20:.1f} MB")
