"""The service over loopback: against the bare engine, and against the same service with a model that does nothing.

    python benchmarks/bench_serve.py RUN

Clients live in a process of their own (`http_clients.py`) but on the same cores, so their work still counts against the
service, and engine times are wall-clock times on cores that are shared with it.
"""

import io
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.checkpoint.run_directory import open_run
from elfnet.deploy.engine import Answers
from elfnet.deploy.export_run import export_run
from elfnet.deploy.load import load
from elfnet.deploy.model import Model
from elfnet.serve.run import listen, server_for
from elfnet.serve.service import Service
from elfnet.serve.settings import ServeSettings
from timing import write_results

CLIENTS = (1, 16, 64)
SECONDS = 4.0
OVERLOAD_SECONDS = 60.0
BATCH = 64


class Idle:
    """An engine that answers at once: what is left is the service itself."""

    def __init__(self, model: Model) -> None:
        self.family, self.backend = model.engine.family, model.engine.backend
        self.operating_point = model.operating_point
        self.exits_in_use: Callable[[str], tuple[bool, ...]] = model.engine.exits_in_use
        self._classes = len(model.class_names)

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str) -> Answers:  # noqa: ARG002
        n = len(images_NKHW)
        zero = np.zeros(n, dtype=np.int64)
        return Answers(zero, np.ones(n), zero, np.ones(n), np.full((n, self._classes), 0.1, dtype=np.float32))


class Running:
    """A service in threads of this process."""

    def __init__(self, model: Model, settings: ServeSettings) -> None:
        self._socket = listen("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self.service = Service(model, name="bench", settings=settings)
        self._server = server_for(self.service)
        self._socket.listen()
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def figure(self, name: str) -> float:
        (found,) = re.findall(rf"^{name} (\S+)$", self.service.metrics.exposition().decode(), re.MULTILINE)
        return float(found)


def request_of(picture: Image.Image) -> bytes:
    """A whole HTTP request with one image."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    part = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
    body = part + file.getvalue() + b"\r\n--b--\r\n"
    lines = (
        "POST /v1/predict HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: multipart/form-data; boundary=b",
        f"content-length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def crowd(port: int, clients: int, seconds: float, request: bytes) -> list[tuple[int, float]]:
    """(status, seconds) of every request of a crowd of clients, who live in another process."""
    words = [sys.executable, str(Path(__file__).with_name("http_clients.py")), str(port), str(clients), str(seconds)]
    done = subprocess.run(words, input=request, capture_output=True, check=True)
    return [(status, taken) for status, taken in json.loads(done.stdout)]


def summary(answered: list[tuple[int, float]], seconds: float) -> dict[str, Any]:
    good = 1e3 * np.array([taken for status, taken in answered if status == 200])
    statuses = {str(status): sum(s == status for s, _ in answered) for status in sorted({s for s, _ in answered})}
    p50, p95, p99 = np.percentile(good, [50, 95, 99]).round(2).tolist()
    return {
        "requests_per_second": round(len(good) / seconds, 1),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "p99_by_p50": round(p99 / p50, 2),
        "statuses": statuses,
    }


def load_run(model: Model, clients: int, request: bytes) -> dict[str, Any]:
    with Running(model, ServeSettings()) as running:
        crowd(running.port, clients, 0.5, request)
        images, seconds = running.figure("elfnet_batch_images_sum"), running.figure("elfnet_engine_seconds_sum")
        calls = running.figure("elfnet_batch_images_count")
        result = summary(crowd(running.port, clients, SECONDS, request), SECONDS)
        done = running.figure("elfnet_batch_images_sum") - images
        result["engine_ms_per_image"] = round(1e3 * (running.figure("elfnet_engine_seconds_sum") - seconds) / done, 4)
        result["mean_batch"] = round(done / (running.figure("elfnet_batch_images_count") - calls), 1)
    return result


def resident_megabytes() -> float:
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        (found,) = re.findall(r"VmRSS:\s+(\d+)", file.read())
    return int(found) / 1024


def overload(model: Model, request: bytes, *, shed: bool) -> dict[str, Any]:
    """Many more clients than the queue holds, without a pause: all must be answered, and memory must not grow."""
    settings = ServeSettings(max_queue=32, max_requests=40, max_images=8, shed_by_budget=shed)
    with Running(model, settings) as running:
        crowd(running.port, 160, 2.0, request)
        before = resident_megabytes()
        result = summary(crowd(running.port, 160, OVERLOAD_SECONDS, request), OVERLOAD_SECONDS)
        recent = running.service.metrics.recent.figures()
        return {
            **result,
            "megabytes_before": round(before, 1),
            "megabytes_after": round(resident_megabytes(), 1),
            "mean_cost": None if recent.mean_cost is None else round(recent.mean_cost, 3),
        }


def main(run: str) -> None:
    with TemporaryDirectory() as directory:
        model = load(export_run(open_run(run), Path(directory) / "bundle", measure_memory=None).path)
    model.set_operating_point(0.6)
    height, width, _ = model.preprocess.shape
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    picture = Image.fromarray(noise).resize((width, height))
    request = request_of(picture)
    ready = model.preprocess([picture] * BATCH)
    for _ in range(3):
        model.engine(ready)
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < 2.0:
        model.engine(ready)
        rounds += 1
    bare = rounds * BATCH / (time.perf_counter() - began)
    served = {str(clients): load_run(model, clients, request) for clients in CLIENTS}
    real = model.engine
    model.engine = Idle(model)  # type: ignore[assignment]
    idle = load_run(model, CLIENTS[-1], request)
    model.engine = real
    most = served[str(CLIENTS[-1])]
    write_results(
        "serve",
        {
            "note": "clients live in another process, on the same two cores",
            "bare_engine_images_per_second_batch_64": round(bare, 1),
            "by_clients": served,
            "idle_model_64_clients": idle,
            "ratios": {
                "requests_against_bare_engine": round(most["requests_per_second"] / bare, 3),
                "requests_against_idle_model": round(most["requests_per_second"] / idle["requests_per_second"], 3),
                "engine_time_per_image_against_one_client": round(
                    most["engine_ms_per_image"] / served["1"]["engine_ms_per_image"], 3
                ),
            },
            "overload": {
                "refuse": overload(model, request, shed=False),
                "shed_by_budget": overload(model, request, shed=True),
            },
        },
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
