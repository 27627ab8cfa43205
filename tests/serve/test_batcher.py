"""Batches, the bound of the queue, and the end."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.deploy.engine import Answers
from elfnet.deploy.model import Model
from elfnet.serve.batcher import Batched, Batcher
from elfnet.serve.errors import Refusal


def ask(batcher: Batcher, pixels_NHWK: NDArray[np.uint8], point: str | float | None) -> "Future[Batched]":
    promised: Future[Batched] = Future()
    batcher.submit(promised, pixels_NHWK, point)
    return promised


class HeldEngine:
    """The model's engine behind a door, so that a test decides when a call goes on."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.family, self.backend = engine.family, engine.backend
        self.door, self.inside = threading.Event(), threading.Event()
        self.calls: list[tuple[int, str]] = []

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str) -> Answers:
        self.calls.append((len(images_NKHW), operating_point))
        self.inside.set()
        assert self.door.wait(10)
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
        given = {"max_batch": 8, "wait_ms": 0.0, "max_queue": 20, "point_under_pressure": lambda _share: "full"}
        batcher = Batcher(model, on_batch=lambda *_: None, **{**given, **settings})
        batcher.start()
        opened.append(batcher)
        return batcher

    yield make
    engine.door.set()
    for batcher in opened:
        batcher.close()


def test_what_waits_becomes_one_call_a_point(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, model: Model, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher()
    images = digit_pixels[:7, :, :, None]
    first = ask(batcher, images[:1], None)
    assert engine.inside.wait(10)
    wishes: list[str | float | None] = ["s=0.5", None, "s=0.5", None, 0.9]
    waiting = [ask(batcher, images[i : i + 1], point) for i, point in enumerate(wishes, start=1)]
    assert batcher.waiting == 5
    engine.door.set()
    budget_point = engine.family.for_budget(0.9).name
    for i, (future, point) in enumerate(zip([first, *waiting], [None, *wishes], strict=True)):
        done = future.result(10)
        name = point if isinstance(point, str) else "full" if point is None else budget_point
        alone = engine._engine(model.preprocess.normalise(images[i : i + 1]), operating_point=name)
        assert done.point == name
        np.testing.assert_array_equal(done.answers.probability_NC, alone.probability_NC)
        assert done.answers.exit_N == alone.exit_N
    assert engine.calls == [(1, "full"), (2, "s=0.5"), (2, "full"), (1, budget_point)]


def test_batches_are_bounded_and_requests_stay_whole(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher(max_batch=4)
    images = digit_pixels[:20, :, :, None]
    futures = [ask(batcher, images[:1], None)]
    assert engine.inside.wait(10)
    futures += [ask(batcher, images[:size], None) for size in (3, 2, 1, 6, 2)]
    engine.door.set()
    assert [len(future.result(10).answers.exit_N) for future in futures] == [1, 3, 2, 1, 6, 2]
    assert [size for size, _ in engine.calls] == [1, 3, 3, 6, 2]


def test_past_the_bound_the_answer_is_503_until_there_is_room(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher(max_queue=4)
    one = digit_pixels[:1, :, :, None]
    futures = [ask(batcher, one, None)]
    assert engine.inside.wait(10)
    futures += [ask(batcher, one, None) for _ in range(4)]
    with pytest.raises(Refusal, match="4 images are waiting already") as refused:
        ask(batcher, one, None)
    assert refused.value.status == 503
    assert int(refused.value.headers["Retry-After"]) >= 1
    engine.door.set()
    for future in futures:
        future.result(10)
    ask(batcher, one, None).result(10)


def test_who_gave_up_is_not_computed(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher()
    one = digit_pixels[:1, :, :, None]
    first = ask(batcher, one, None)
    assert engine.inside.wait(10)
    given_up, kept = ask(batcher, one, None), ask(batcher, one, None)
    assert given_up.cancel()
    engine.door.set()
    first.result(10)
    assert kept.result(10).batch == 1
    assert batcher.waiting == 0


def test_the_end_finishes_what_was_taken(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    batcher = make_batcher(max_batch=1)
    one = digit_pixels[:1, :, :, None]
    futures = [ask(batcher, one, None) for _ in range(5)]
    assert engine.inside.wait(10)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while batcher.ready:
        pass
    with pytest.raises(Refusal, match="shutting down"):
        ask(batcher, one, None)
    engine.door.set()
    closing.join(10)
    assert all(future.done() and future.exception() is None for future in futures)


def test_a_failing_call_fails_its_requests_only(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    engine.door.set()
    batcher = make_batcher()
    with pytest.raises(ValueError):
        ask(batcher, np.zeros((1, 3, 3, 1), dtype=np.uint8), None).result(10)
    assert ask(batcher, digit_pixels[:1, :, :, None], None).result(10).batch == 1


def test_a_batch_waits_for_company(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    """With a long wait, a full batch ends the wait; nobody waits for the clock."""
    engine.door.set()
    batcher = make_batcher(max_batch=3, wait_ms=60_000.0)
    futures = [ask(batcher, digit_pixels[:1, :, :, None], None) for _ in range(3)]
    assert [future.result(10).batch for future in futures] == [3, 3, 3]


def test_a_batch_is_handed_over_in_one_piece(
    make_batcher: Callable[..., Batcher], engine: HeldEngine, digit_pixels: NDArray[np.uint8]
) -> None:
    handed: SimpleQueue[Callable[[], None]] = SimpleQueue()
    batcher = make_batcher(max_batch=3, wait_ms=60_000.0)
    batcher.hand_over = handed.put
    engine.door.set()
    futures = [ask(batcher, digit_pixels[:1, :, :, None], None) for _ in range(3)]
    resolve = handed.get(timeout=10)
    assert not any(future.done() for future in futures)
    assert futures[1].cancel()
    resolve()
    assert [future.cancelled() or future.result().batch for future in futures] == [3, True, 3]
    assert handed.empty()
