"""A service with a small real classifier of digits: its exits see the image at 2, 4 and 8 pixels per side."""

# Shapes: N images, C classes, H height, W width, D inputs of a linear classifier

import base64
import io
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from starlette.testclient import TestClient

from elfnet.calibrate.line_search import fixed_points
from elfnet.calibrate.point_family import Family
from elfnet.evaluate.exit_table import ExitTable
from elfnet.inference.engine import Engine
from elfnet.inference.model import Model
from elfnet.inference.preprocess import Preprocess
from elfnet.serve import Sample, ServeSettings, Service, bind_socket, build_server, create_app

SIDES = (2, 4, 8)
CLASSES = 10
NAMES = ("zero", "<b>one</b>", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _pooled(images_NHW: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    block = images_NHW.shape[1] // side
    pooled = (
        images_NHW.reshape(len(images_NHW), side, block, side, block).mean(axis=(2, 4)).reshape(len(images_NHW), -1)
    )
    return np.concatenate([pooled, np.ones((len(pooled), 1), dtype=np.float32)], axis=1)


class LinearBackend:
    """One linear classifier per exit, by least squares on the first half of the digits."""

    def __init__(self, images_NHW: NDArray[np.float32], labels_N: NDArray[np.int64]) -> None:
        target_NC = 6.0 * np.eye(CLASSES, dtype=np.float32)[labels_N]
        self.weights_DC = []
        for side in SIDES:
            inputs_ND = _pooled(images_NHW, side)
            gram = inputs_ND.T @ inputs_ND + 0.1 * np.eye(inputs_ND.shape[1], dtype=np.float32)
            self.weights_DC.append(np.linalg.solve(gram, inputs_ND.T @ target_NC).astype(np.float32))

    @property
    def exits(self) -> int:
        return len(SIDES)

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        return images_BKHW[:, 0]

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        # Row by row, so that an image gets the same bits in any batch.
        rows = [row @ self.weights_DC[k] for row in _pooled(features, SIDES[k])]
        return features, np.array(rows, dtype=np.float32).reshape(len(features), CLASSES)

    def run_without_head(self, k: int, features: Any) -> Any:  # noqa: ARG002
        return features

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return features[stay]


@pytest.fixture(scope="session")
def digit_pixels() -> NDArray[np.uint8]:
    """The second half of the digits, uint8 (N, 8, 8)."""
    found: NDArray[np.uint8] = (load_digits().images[900:] * 15.9375).round().astype(np.uint8)
    return found


@pytest.fixture(scope="session")
def backend() -> LinearBackend:
    digits = load_digits()
    return LinearBackend((digits.images[:900] / 16.0).astype(np.float32), digits.target[:900])


@pytest.fixture(scope="session")
def family(backend: LinearBackend) -> Family:
    digits = load_digits()
    features = (digits.images[900:1400] / 16.0).astype(np.float32)
    table = ExitTable(
        logits_NEC=np.stack([backend.run(k, features)[1] for k in range(backend.exits)], axis=1),
        labels_N=digits.target[900:1400].astype(np.int64),
        cost_E=np.array([0.2, 0.6, 1.1]),
        head_cost_E=np.array([0.05, 0.05, 0.01]),
        plain_multiply_adds=100,
        class_counts_C=np.arange(100, 0, -10),
        class_names=NAMES,
        split="calibration",
        checkpoint_sha256="0" * 64,
        confidence_scale=1.0,
        many_above=60,
        few_below=30,
    )
    return fixed_points(table, [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])


@pytest.fixture
def model(backend: LinearBackend, family: Family) -> Model:
    preprocess = Preprocess(mode="L", height=8, width=8, mean=(0.0,), std=(1.0,))
    return Model(Engine(backend, family), preprocess, NAMES)


@pytest.fixture
def make_client(model: Model) -> Iterator[Callable[..., TestClient]]:
    """Creates clients of a running service; settings as keywords."""
    opened: list[TestClient] = []

    def make(*, token: str | None = None, **settings: Any) -> TestClient:
        service = Service(model, name="digits", settings=ServeSettings(**settings), token=token)
        client = TestClient(create_app(service), base_url="http://localhost")
        client.__enter__()
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client()


@pytest.fixture(scope="session")
def png() -> Callable[[NDArray[np.uint8]], bytes]:
    """Encodes pixels as the bytes of a PNG file."""

    def encode(pixels: NDArray[np.uint8]) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, format="PNG")
        return file.getvalue()

    return encode


@pytest.fixture(scope="session")
def digit_files(digit_pixels: NDArray[np.uint8], png: Callable[[NDArray[np.uint8]], bytes]) -> list[bytes]:
    return [png(pixels) for pixels in digit_pixels[:40]]


@pytest.fixture(scope="session")
def as_json() -> Callable[..., dict[str, Any]]:
    """Makes a JSON body from image files."""

    def make(files: list[bytes], **more: Any) -> dict[str, Any]:
        return {"images": [base64.b64encode(content).decode() for content in files], **more}

    return make


class Live:
    """A service with a real socket, in a thread."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.socket = bind_socket("127.0.0.1", 0)
        self.port: int = self.socket.getsockname()[1]
        self.server = build_server(service)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        # Connections wait in the socket's backlog until the server accepts them.
        self.socket.listen()
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.should_exit = True

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()
        self.socket.close()


@pytest.fixture
def live(model: Model) -> Iterator[Callable[..., Live]]:
    """Starts services on ports of their own; settings as keywords."""
    running: list[Live] = []

    def start(*, samples: tuple[Sample, ...] = (), token: str | None = None, **settings: Any) -> Live:
        service = Service(model, name="digits", settings=ServeSettings(**settings), samples=samples, token=token)
        running.append(Live(service))
        return running[-1]

    yield start
    for started in running:
        started.stop()
        started.join()
