"""Measure the time of stages and heads, and of the engine at an operating point.

The overhead of the engine is measured against the same stage calls on the same inputs, one after the other. Repeating
each stage by itself would be too fast a reference, because its weights stay in the cache (batch 1, ResNet-32: 0.87 to
0.94 of the time), while inference runs stage after stage.
"""

# Shapes: B images per batch, N images, K channels, H height, W width

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.inference.engine import Answers, Backend, Engine

ROUNDS = 15
WARM_UP = 3
MIN_SECONDS = 1e-9
"""Smallest time of a head, which is the difference of two noisy measurements and must stay positive."""

Images = NDArray[np.float32]


def measure_stages(
    backend: Backend,
    images_BKHW: NDArray[np.float32],
    *,
    name: str,
    threads: int,
    rounds: int = ROUNDS,
    plain_exit: int | None = None,
) -> MeasuredCost:
    """Measure the median time of each stage and head, in seconds per image.

    Every round runs the whole network with heads and then without, stage after stage as an engine does. Other load on
    the machine then affects all measurements alike.

    Args:
        backend: The backend to measure.
        images_BKHW: A batch of real, normalised images, of the batch size used later.
        name: Name of the backend in the result.
        threads: Number of threads in the result.
        rounds: Measurements per stage.
        plain_exit: Index of the exit that ends the plain backbone, see `Family.plain_exit`; None for the last exit.
    """
    inputs = [backend.start(images_BKHW)]
    for k in range(backend.exits - 1):
        inputs.append(backend.run_without_head(k, inputs[-1]))
    calls: dict[str, Callable[[], object]] = {}
    for k, features in enumerate(inputs):
        calls[f"with {k}"] = lambda k=k, features=features: backend.run(k, features)  # type: ignore[misc]
    for k, features in enumerate(inputs[:-1]):
        calls[f"alone {k}"] = lambda k=k, features=features: backend.run_without_head(k, features)  # type: ignore[misc]
    median = {call: statistics.median(taken) for call, taken in taking_turns(calls, rounds=rounds).items()}
    last = backend.exits - 1
    heads = [max(median[f"with {k}"] - median[f"alone {k}"], MIN_SECONDS) for k in range(last)]
    stages = [median[f"alone {k}"] for k in range(last)]
    # The last stage never runs without its head, whose share is small: pooling and a matrix product.
    stages.append(median[f"with {last}"])
    heads.append(MIN_SECONDS)
    per_image = 1.0 / len(images_BKHW)
    plain_exit = last if plain_exit is None else plain_exit
    return MeasuredCost(
        stages=tuple(seconds * per_image for seconds in stages),
        heads=tuple(seconds * per_image for seconds in heads),
        plain=(sum(stages[: plain_exit + 1]) + heads[plain_exit]) * per_image,
        backend=name,
        batch=len(images_BKHW),
        threads=threads,
    )


def measure_single_images(
    backend: Backend,
    image_shape: tuple[int, int, int],
    *,
    name: str,
    threads: int | None,
    plain_exit: int | None = None,
) -> MeasuredCost:
    """Measure the time of each stage and head for one image at a time, which is what a budget in milliseconds means.

    Every stage runs, so the content of the image does not matter: it is noise.

    Args:
        backend: The backend to measure.
        image_shape: (channels, height, width) of an image.
        name, plain_exit: See `measure_stages`.
        threads: Threads of the backend; None for its default.
    """
    noise_1KHW = np.random.default_rng(0).standard_normal((1, *image_shape), dtype=np.float32)
    return measure_stages(backend, noise_1KHW, name=name, threads=threads or 0, plain_exit=plain_exit)


def taking_turns(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up: int = WARM_UP,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Measure several calls in turn: every round makes each call once.

    Each round starts one call later, so that no call always finds the cache as the same other call left it.

    Args:
        calls: The functions to measure, by name.
        rounds: Measurements per call.
        warm_up: Rounds before these that are not counted.
        clock: Time in seconds.

    Returns:
        Seconds per round, by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for turn in range(warm_up + rounds):
        for name in order:
            began = clock()
            calls[name]()
            if turn >= warm_up:
                seconds[name].append(clock() - began)
        order = [*order[1:], order[0]]
    return seconds


class RecordingBackend:
    """Forwards all calls to a backend, and records them so that the same work can be repeated without the engine."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.calls: list[Callable[[], object]] = []

    @property
    def exits(self) -> int:
        return self._backend.exits

    def start(self, images_BKHW: Images) -> Any:
        return self._backend.start(images_BKHW)

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        self.calls.append(lambda: self._backend.run(k, features))
        return self._backend.run(k, features)

    def run_without_head(self, k: int, features: Any) -> Any:
        self.calls.append(lambda: self._backend.run_without_head(k, features))
        return self._backend.run_without_head(k, features)

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return self._backend.keep(features, stay)


@dataclass(frozen=True)
class PointTimes:
    """Times of one operating point at one batch size, in milliseconds per call.

    Ratios are computed within each round, where other load affects both times alike. The ratio of a batch is the median
    over rounds; batches are weighted by their time.

    Attributes:
        point: Name of the operating point.
        batch: Images per call.
        exit_share: Share of these images that exit at each exit.
        mean_cost: Mean cost of these images, in the family's unit.
        p50, p95, p99: Percentiles of the engine's calls.
        stages: Median time of the engine's stage calls alone.
        plain: Median time of the plain network on the same images; None without a plain network.
        time_ratio: Time of the engine relative to the plain network; None without a plain network.
        overhead: Time of the engine relative to its stage calls alone.
        first_exit_p50, first_exit_p99: At batch 1, percentiles of the images that exit at the first exit taken.
        last_exit_p50, last_exit_p99: At batch 1, percentiles of the images that exit at the last exit taken.
    """

    point: str
    batch: int
    exit_share: tuple[float, ...]
    mean_cost: float
    p50: float
    p95: float
    p99: float
    stages: float
    plain: float | None
    time_ratio: float | None
    overhead: float
    first_exit_p50: float | None
    first_exit_p99: float | None
    last_exit_p50: float | None
    last_exit_p99: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dictionary."""
        return asdict(self)


def time_point(
    backend: Backend,
    family: Family,
    point: str,
    batches: Sequence[Images],
    *,
    engine: Engine | None = None,
    plain: Backend | None = None,
    rounds: int = 5,
) -> PointTimes:
    """Measure an operating point: the engine, its stage calls alone and the plain network, in turn per batch.

    Args:
        backend: The staged backend to measure.
        family: The operating points.
        point: Name of the point to measure.
        batches: Normalised images; all batches of one size.
        engine: The engine to measure; None for a staged engine on `backend`.
        plain: A backend of the backbone without exits, as a network with one exit.
        rounds: Measurements per batch.
    """
    recorder = RecordingBackend(backend)
    recording = Engine(recorder, family)
    engine = Engine(backend, family) if engine is None else engine
    answers: list[Answers] = []
    measured: list[dict[str, list[float]]] = []
    for images in batches:
        recorder.calls.clear()
        answers.append(recording(images, operating_point=point))
        calls: dict[str, Callable[[], object]] = {
            "engine": lambda images=images: engine(images, operating_point=point),  # type: ignore[misc]
            "stages": lambda: [call() for call in recorder.calls],
        }
        if plain is not None:
            calls["plain"] = lambda images=images: plain.run(0, plain.start(images))  # type: ignore[misc]
        measured.append(taking_turns(calls, rounds=rounds, warm_up=1))
    engine_all = [second for seconds in measured for second in seconds["engine"]]
    deepest = [int(answer.exit_N.max()) for answer in answers for _ in range(rounds)]
    by_exit = _by_exit(engine_all, deepest) if len(batches[0]) == 1 else {}
    first, last = (by_exit[min(by_exit)], by_exit[max(by_exit)]) if len(by_exit) > 1 else (None, None)
    exit_N = np.concatenate([answer.exit_N for answer in answers])
    p50, p95, p99 = _percentiles(engine_all)
    return PointTimes(
        point=point,
        batch=len(batches[0]),
        exit_share=tuple((np.bincount(exit_N, minlength=backend.exits) / len(exit_N)).tolist()),
        mean_cost=float(np.concatenate([answer.cost_N for answer in answers]).mean()),
        p50=p50,
        p95=p95,
        p99=p99,
        stages=_milliseconds(measured, "stages"),
        plain=_milliseconds(measured, "plain") if plain is not None else None,
        time_ratio=_ratio(measured, "engine", "plain") if plain is not None else None,
        overhead=_ratio(measured, "engine", "stages"),
        first_exit_p50=first[0] if first else None,
        first_exit_p99=first[2] if first else None,
        last_exit_p50=last[0] if last else None,
        last_exit_p99=last[2] if last else None,
    )


def batches_of(images_NKHW: Images, size: int, *, most: int, seed: int = 0) -> list[Images]:
    """Return at most `most` full batches of different images in random order, so that easy and hard ones are mixed."""
    order_N = np.random.default_rng(seed).permutation(len(images_NKHW))
    count = min(most, len(order_N) // size)
    return [np.ascontiguousarray(images_NKHW[order_N[i * size : (i + 1) * size]]) for i in range(count)]


def _milliseconds(measured: Sequence[Mapping[str, list[float]]], name: str) -> float:
    """Return the mean over batches of the median over rounds."""
    return 1e3 * statistics.mean(statistics.median(seconds[name]) for seconds in measured)


def _ratio(measured: Sequence[Mapping[str, list[float]]], name: str, reference: str) -> float:
    """Return the time of `name` relative to `reference` over all batches."""
    relative = own = 0.0
    for seconds in measured:
        typical = statistics.median(seconds[reference])
        ratios = [a / b for a, b in zip(seconds[name], seconds[reference], strict=True)]
        own += typical * statistics.median(ratios)
        relative += typical
    return own / relative


def _by_exit(seconds: list[float], exit_of_call: list[int]) -> dict[int, tuple[float, float, float]]:
    return {
        taken: _percentiles([second for second, at in zip(seconds, exit_of_call, strict=True) if at == taken])
        for taken in set(exit_of_call)
    }


def _percentiles(seconds: list[float]) -> tuple[float, float, float]:
    """Return p50, p95 and p99 in milliseconds."""
    p50, p95, p99 = (1e3 * float(value) for value in np.percentile(seconds, [50, 95, 99]))
    return p50, p95, p99
