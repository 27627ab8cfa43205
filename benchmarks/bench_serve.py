"""The service over loopback: against the bare engine, and against the same service with a model that does nothing.

    python benchmarks/bench_serve.py RUN

Clients live in a process of their own (`http_clients.py`) but on the same cores, so their work still counts against the
service, and engine times are wall-clock times on cores that are shared with it. They send images of the run's test
split, so that images leave at all exits. The model and the one that does nothing take turns.
"""

import io
import json
import re
import struct
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

from elfnet.export.read_run import split_images
from elfnet.export.run import export_run
from elfnet.inference.engine import Answers
from elfnet.inference.model import Model, load
from elfnet.run.directory import RunDirectory, open_run
from elfnet.serve import ServeSettings, Service, bind_socket, build_server
from timing import write_results

CLIENTS = (1, 16, 64)
SECONDS = 3.0
ROUNDS = 3
OVERLOAD_SECONDS = 60.0
OVERLOAD_CLIENTS, PLACES = 320, 40
BATCH = 64

Requests = list[bytes]


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
        self._socket = bind_socket("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self.service = Service(model, name="bench", settings=settings)
        self._server = build_server(self.service)
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


def pictures(run: RunDirectory, model: Model) -> list[Image.Image]:
    """Images of the test split, as files would hold them."""
    images_NHWK = split_images(run, "test", most=BATCH).transpose(0, 2, 3, 1)
    pixels_NHWK = 255 * (images_NHWK * np.array(model.preprocess.std) + np.array(model.preprocess.mean))
    shape = model.preprocess.shape if model.preprocess.shape[2] == 3 else model.preprocess.shape[:2]
    return [Image.fromarray(pixels.reshape(shape)) for pixels in pixels_NHWK.round().astype(np.uint8)]


def crowd(port: int, clients: int, seconds: float, requests: Requests) -> tuple[list[tuple[int, float]], float]:
    """(status, seconds) of every request of a crowd of clients in another process, and its processor seconds."""
    words = [sys.executable, str(Path(__file__).with_name("http_clients.py")), str(port), str(clients), str(seconds)]
    content = b"".join(struct.pack(">Q", len(request)) + request for request in requests)
    done = json.loads(subprocess.run(words, input=content, capture_output=True, check=True).stdout)
    return [(status, taken) for status, taken in done["answered"]], done["processor_seconds"]


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


def load_run(model: Model, clients: int, requests: Requests) -> dict[str, Any]:
    with Running(model, ServeSettings()) as running:
        crowd(running.port, clients, 0.5, requests)
        images, seconds = running.figure("elfnet_batch_images_sum"), running.figure("elfnet_engine_seconds_sum")
        calls = running.figure("elfnet_batch_images_count")
        busy = time.process_time()
        answered, of_clients = crowd(running.port, clients, SECONDS, requests)
        busy = time.process_time() - busy
        result = summary(answered, SECONDS)
        result["processor_ms_per_request"] = round(1e3 * busy / len(answered), 3)
        result["processor_ms_per_request_of_clients"] = round(1e3 * of_clients / len(answered), 3)
        done = running.figure("elfnet_batch_images_sum") - images
        result["engine_ms_per_image"] = round(1e3 * (running.figure("elfnet_engine_seconds_sum") - seconds) / done, 4)
        result["mean_batch"] = round(done / (running.figure("elfnet_batch_images_count") - calls), 1)
    return result


class Memory:
    """What this process, which is the service, has in memory, once a second: before the answers are counted in it."""

    def __init__(self) -> None:
        self.megabytes: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(1.0):
            (found,) = re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
            self.megabytes.append(int(found) / 1024)


def overload(model: Model, requests: Requests, *, shed: bool) -> dict[str, Any]:
    """Many more clients than there are places, without a pause: all must be answered, and memory must not grow."""
    settings = ServeSettings(max_queue=PLACES - 8, max_requests=PLACES, max_images=8, shed_by_budget=shed)
    with Running(model, settings) as running:
        crowd(running.port, OVERLOAD_CLIENTS, 2.0, requests)
        with Memory() as memory:
            answered, _ = crowd(running.port, OVERLOAD_CLIENTS, OVERLOAD_SECONDS, requests)
        result = summary(answered, OVERLOAD_SECONDS)
        recent = running.service.metrics.recent.stats()
        # Not the last second, in which the answers of the clients come to this process.
        early, late = memory.megabytes[5:15], memory.megabytes[-15:-5]
        return {
            **result,
            "asked_against_accepted": round(len(answered) / result["statuses"]["200"], 2),
            "megabytes_early": round(max(early), 1),
            "megabytes_late": round(max(late), 1),
            "mean_cost": None if recent.mean_cost is None else round(recent.mean_cost, 3),
        }


def bare_engine_ms(model: Model, images_NKHW: NDArray[np.float32], batch: int) -> float:
    """Milliseconds per image, in batches of one size, with the machine to itself."""
    batches = [images_NKHW[at : at + batch] for at in range(0, len(images_NKHW), batch)]
    for ready in batches[:3]:
        model.engine(ready)
    began, images = time.perf_counter(), 0
    while time.perf_counter() - began < 1.0:
        for ready in batches:
            model.engine(ready)
        images += len(images_NKHW)
    return round(1e3 * (time.perf_counter() - began) / images, 4)


def middle(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The round with the median of requests per second."""
    return sorted(results, key=lambda result: float(result["requests_per_second"]))[len(results) // 2]


def main(name: str) -> None:
    run = open_run(name)
    with TemporaryDirectory() as directory:
        model = load(export_run(run, Path(directory) / "bundle", measure_memory=None).path)
    model.set_operating_point(0.6)
    images = pictures(run, model)
    requests = [request_of(image) for image in images]
    real, idle_engine = model.engine, Idle(model)
    rounds: dict[str, list[dict[str, Any]]] = {}
    bare: dict[int, list[float]] = {1: [], BATCH: []}
    for _ in range(ROUNDS):
        for batch, times in bare.items():
            times.append(bare_engine_ms(model, model.preprocess(images), batch))
        for clients in CLIENTS:
            rounds.setdefault(str(clients), []).append(load_run(model, clients, requests))
        model.engine = idle_engine  # type: ignore[assignment]
        rounds.setdefault("idle", []).append(load_run(model, CLIENTS[-1], requests))
        model.engine = real
    most = str(CLIENTS[-1])

    def ratio(figure: str, above: str, below: str) -> list[float]:
        return [round(a[figure] / b[figure], 3) for a, b in zip(rounds[above], rounds[below], strict=True)]

    write_results(
        "serve",
        {
            "note": "clients live in another process, on the same cores; the round with the median rate of requests",
            "bare_engine_ms_per_image": {f"batch {batch}": sorted(times) for batch, times in bare.items()},
            "by_clients": {str(clients): middle(rounds[str(clients)]) for clients in CLIENTS},
            "idle_model_64_clients": middle(rounds["idle"]),
            "ratios_by_round": {
                "requests_against_idle_model": ratio("requests_per_second", most, "idle"),
                "engine_time_per_image_against_one_client": ratio("engine_ms_per_image", most, "1"),
                "bare_engine_time_per_image_against_batch_1": [
                    round(a / b, 3) for a, b in zip(bare[BATCH], bare[1], strict=True)
                ],
            },
            "overload": {
                "refuse": overload(model, requests, shed=False),
                "shed_by_budget": overload(model, requests, shed=True),
            },
        },
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
