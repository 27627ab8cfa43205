"""Batching, the limit of the queue, and shutdown."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.inference.engine import Answers
from elfnet.inference.model import Model
from elfnet.serve.batcher import Batcher, BatchResult
from elfnet.serve.errors import ApiError


def submit(batcher: Batcher, pixels_NHWK: NDArray[np.uint8], point: str | float | None) -> "Future[BatchResult]":
    future: Future[BatchResult] = Future()
    batcher.submit(future, pixels_NHWK, point)
    return future


class HeldEngine:
    """The model's engine; a call waits until the test opens the gate."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.family, self.backend = engine.family, engine.backend
        self.gate, self.inside = threading.Event(), threading.Event()
        self.calls: list[tuple[int, str]] = []

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str) -> Answers:
        self.calls.append((len(images_NKHW), operating_point))
        self.inside.set()
        assert self.gate.wait(10)
        answers: Answers = self._engine(images_NKHW, operating_point=operating_point)
        return answers


@pytest.fixture
def engine(model: Model) -> HeldEngine:
    return HeldEngine(model.engine)


@pytest.fixture
def make_batcher(model: Model, engine: HeldEngine) -> Iterator[Callable[..., Batcher]]:
    opened: list[Batcher] = []
    model.engine = engine  # type: ignore[assignment]

    def make(**settings: Any) -> Batcher:
        given = {"max_batch": 8, "wait_ms": 0.0, "max_queue": 20, "default_point": lambda _share: "full"}
        batcher = Batcher(model, on_batch=lambda *_: None, **{**given, **settings})
        batcher.start()
        opened.append(batcher)
        return batcher

    yield make
    engine.gate.set()
    for batcher in opened:
        batcher.close()


def test_waiting_requests_become_one_call_per_operating_point(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, model: Model, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher()
    images = digit_pixels[:7, :, :, None]
    first = submit(batcher, images[:1], None)
    assert engine.inside.wait(10)
    points: list[str | float | None] = ["s=0.5", None, "s=0.5", None, 0.9]
    waiting = [submit(batcher, images[i : i + 1], point) for i, point in enumerate(points, start=1)]
    assert batcher.waiting == 5
    engine.gate.set()
    budget_point = engine.family.for_budget(0.9).name
    for i, (future, point) in enumerate(zip([first, *waiting], [None, *points], strict=True)):
        done = future.result(10)
        name = point if isinstance(point, str) else "full" if point is None else budget_point
        alone = engine._engine(model.preprocess.normalise(images[i : i + 1]), operating_point=name)
        assert done.point == name
        np.testing.assert_array_equal(done.answers.probability_NC, alone.probability_NC)
        assert done.answers.exit_N == alone.exit_N
    # This engine runs stage after stage, so one point after the other.
    assert engine.calls == [(1, "full"), (2, "s=0.5"), (2, "full"), (1, budget_point)]


def test_batches_are_limited_and_requests_are_not_split(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher(max_batch=4)
    images = digit_pixels[:20, :, :, None]
    futures = [submit(batcher, images[:1], None)]
    assert engine.inside.wait(10)
    futures += [submit(batcher, images[:size], None) for size in (3, 2, 1, 6, 2)]
    engine.gate.set()
    assert [len(future.result(10).answers.exit_N) for future in futures] == [1, 3, 2, 1, 6, 2]
    assert [size for size, _ in engine.calls] == [1, 3, 3, 6, 2]


def test_a_full_queue_is_503_until_it_has_room(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher(max_queue=4)
    one = digit_pixels[:1, :, :, None]
    futures = [submit(batcher, one, None)]
    assert engine.inside.wait(10)
    futures += [submit(batcher, one, None) for _ in range(4)]
    with pytest.raises(ApiError, match="4 of at most 4 images are waiting; try again later") as refused:
        submit(batcher, one, None)
    assert refused.value.status == 503
    assert int(refused.value.headers["Retry-After"]) >= 1
    engine.gate.set()
    for future in futures:
        future.result(10)
    submit(batcher, one, None).result(10)


def test_cancelled_requests_are_not_computed(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher()
    one = digit_pixels[:1, :, :, None]
    first = submit(batcher, one, None)
    assert engine.inside.wait(10)
    cancelled, kept = submit(batcher, one, None), submit(batcher, one, None)
    assert cancelled.cancel()
    engine.gate.set()
    first.result(10)
    assert kept.result(10).batch == 1
    assert batcher.waiting == 0


def test_close_completes_the_requests_in_the_queue(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher(max_batch=1)
    one = digit_pixels[:1, :, :, None]
    futures = [submit(batcher, one, None) for _ in range(5)]
    assert engine.inside.wait(10)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while batcher.ready:
        pass
    with pytest.raises(ApiError, match="the service is shutting down"):
        submit(batcher, one, None)
    engine.gate.set()
    closing.join(10)
    assert all(future.done() and future.exception() is None for future in futures)


def test_a_failing_engine_call_fails_only_its_requests(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    engine.gate.set()
    batcher = make_batcher()
    with pytest.raises(ValueError):
        submit(batcher, np.zeros((1, 3, 3, 1), dtype=np.uint8), None).result(10)
    assert submit(batcher, digit_pixels[:1, :, :, None], None).result(10).batch == 1


def test_a_full_batch_ends_the_wait(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    engine.gate.set()
    batcher = make_batcher(max_batch=3, wait_ms=60_000.0)
    futures = [submit(batcher, digit_pixels[:1, :, :, None], None) for _ in range(3)]
    assert [future.result(10).batch for future in futures] == [3, 3, 3]


def test_the_results_of_a_batch_are_set_in_one_call(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    batcher = make_batcher(max_batch=3, wait_ms=60_000.0)
    batcher.call_soon = calls.put
    engine.gate.set()
    futures = [submit(batcher, digit_pixels[:1, :, :, None], None) for _ in range(3)]
    resolve = calls.get(timeout=10)
    assert not any(future.done() for future in futures)
    assert futures[1].cancel()
    resolve()
    assert [future.cancelled() or future.result().batch for future in futures] == [3, True, 3]
    assert calls.empty()
